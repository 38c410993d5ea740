// What dialsm.hpp adds to dialsm.h: ownership, views, both ways to fail. Usage: test DIRECTORY
#include "dialsm.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <locale>
#include <thread>

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            std::cerr << __FILE__ << ':' << __LINE__ << ": " #condition "\n"; \
            std::exit(1);                                                      \
        }                                                                      \
    } while (0)

template <typename Call>
static dialsm::Code thrown(Call call)
{
    try {
        call();
    } catch (const dialsm::Error &error) {
        CHECK(error.what()[0] != '\0');
        return error.code();
    }
    return DIALSM_OK;
}

static void test_calls(const std::string &path)
{
    dialsm::Db db = dialsm::Db::open(path);
    db.put("a", "1");
    db.put("", "of the empty key");
    CHECK(db.get("a") == "1" && !db.get("b") && db.get("") == "of the empty key");
    db.put("b", "");
    CHECK(db.get("b") == "");
    db.erase("b");
    db.erase_range("x", "y");
    dialsm::Pinned pinned;
    db.get("a", pinned);
    CHECK(pinned && *pinned == "1");
    auto found = db.multi_get({"a", "b"});
    CHECK(found.size() == 2 && found[0] == "1" && !found[1]);

    dialsm::Keyspace other = db.create_keyspace("other");
    CHECK(other.name() == "other" && other.id() > 0 && dialsm::Keyspace().name() == "default");
    dialsm::Batch batch;
    batch.put("c", "3").put("c", "4", other).erase("a").erase_range("m", "n");
    CHECK(batch.size() == 4);
    dialsm::Snapshot snapshot = db.snapshot();
    CHECK(snapshot.sequence() > 0);
    db.write(batch, dialsm::WriteOptions().sync());
    CHECK(db.get("c", db.keyspace("other")) == "4" && !db.get("a"));
    CHECK(db.get("a", {}, dialsm::ReadOptions().snapshot(snapshot)) == "1");
    batch.clear();
    batch.merge("c", "5");
    CHECK(thrown([&] { db.write(batch); }) == DIALSM_INVALID_ARGUMENT);

    db.put("d", "x");
    std::string keys;
    dialsm::Iterator iterator = db.iterate(dialsm::ReadOptions().from("b").to("e"));
    for (auto [key, value] : iterator)
        keys.append(key).append("=").append(value).append(" ");
    CHECK(keys == "c=3 d=x ");
    iterator.seek_to_last();
    iterator.prev();
    CHECK(iterator.valid() && iterator.key() == "c" && iterator.value() == "3");
    iterator.seek_for_prev("cc");
    CHECK(iterator.key() == "c");
    iterator.next();
    iterator.next();
    CHECK(!iterator.valid() && iterator.key().empty());

    db.flush();
    db.compact();
    db.sync();
    db.rollback();
    db.checkpoint(path + ".copy");
    CHECK(dialsm::Db::open_read_only(path + ".copy").get("c") == "3");
    CHECK(db.stalls().state == DIALSM_STALL_OPEN && db.clues().clues == 0);
    CHECK(db.statistics_json().front() == '{' && db.property("dialsm.num-keyspaces") == "2");
    db.drop_keyspace(other);
    CHECK(thrown([&] { db.put("k", "v", other); }) == DIALSM_NOT_FOUND);
}

struct Comma : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
};

/* A static object is destroyed after what a thread keeps for itself. */
struct Last {
    std::optional<dialsm::Db> db;
    ~Last()
    {
        if (db && thrown([&] { db->put("k", "v"); }) != DIALSM_CLOSED)
            std::_Exit(9);
    }
};
static Last last;

static void test_failures(const std::string &path)
{
    dialsm::Options options;
    std::locale before = std::locale::global(std::locale(std::locale::classic(), new Comma));
    options.set("redirect_pressure", 0.000000125);
    std::locale::global(before);
    char *text = nullptr;
    CHECK(dialsm_options_get(options.get(), DIALSM_STR("redirect_pressure"), &text, nullptr, nullptr) == DIALSM_OK);
    CHECK(std::stod(text) == 0.000000125);
    dialsm_free(text);
    CHECK(thrown([&] { options.set("redirect_pressure", 1e300); }) == DIALSM_INVALID_ARGUMENT);
    CHECK(thrown([&] { options.set("no such", 1); }) == DIALSM_INVALID_ARGUMENT);
    options.set("create_if_missing", false);
    dialsm::Status status;
    CHECK(!dialsm::Db::open(path + ".absent", options, status));
    CHECK(!status && status.code() == DIALSM_NOT_FOUND && !status.message().empty());
    CHECK(thrown([&] { dialsm::Db::open(path + ".absent", options); }) == DIALSM_NOT_FOUND);
    std::optional<dialsm::Db> db = dialsm::Db::open(path + ".second", {}, status);
    CHECK(db && status);
    CHECK(thrown([&] { db->property("nonsense"); }) == DIALSM_NOT_FOUND);
    dialsm::Iterator late = db->iterate(dialsm::ReadOptions().timeout_ns(0));
    CHECK(thrown([&] { late.seek("k"); }) == DIALSM_TIMED_OUT);
    late.seek("k", status);
    CHECK(status.code() == DIALSM_TIMED_OUT);

    // What hangs on a database keeps it open; moved-from objects are nothing.
    dialsm::Db moved = std::move(*db);
    db.reset();
    dialsm::Iterator iterator = moved.iterate();
    moved.close();
    CHECK(thrown([&] { moved.close(); }) == DIALSM_CLOSED);
    moved.put("k", "v", {}, {}, status);
    CHECK(status.code() == DIALSM_CLOSED);
    iterator.seek_to_first();
}

static void test_callbacks(const std::string &path)
{
    dialsm::Options options;
    dialsm::MergeOperator joined("test.joined", [](auto key, auto base, auto &operands) {
        if (key == "throws")
            throw std::runtime_error("not this one");
        std::string value(base.value_or(""));
        for (std::string_view operand : operands)
            value.append(operand);
        return key == "refused" ? std::nullopt : std::optional<std::string>(value);
    });
    dialsm::Comparator backward("test.backward", [](auto a, auto b) { return b.compare(a); }, true);
    options.merge_operator(joined).comparator(backward);
    dialsm::Db db = dialsm::Db::open(path + ".callbacks", options);
    for (std::string_view key : {"a", "b", "throws", "refused"}) {
        db.put(key, "1");
        db.merge(key, "2");
        db.merge(key, "3");
    }
    CHECK(db.get("a") == "123" && db.get("b") == "123");
    CHECK(thrown([&] { db.get("throws"); }) == DIALSM_CALLBACK);
    CHECK(thrown([&] { db.get("refused"); }) == DIALSM_CALLBACK);
    dialsm::Iterator iterator = db.iterate(dialsm::ReadOptions().from("b"));
    iterator.seek_to_first();
    CHECK(iterator.key() == "b");
    iterator.next();
    CHECK(iterator.key() == "a");
}

/* The call fails with the code, without a word and with a Status. */
template <typename Call>
static void fails(dialsm::Code code, Call call)
{
    CHECK(thrown([&] { call(dialsm::Outcome()); }) == code);
    dialsm::Status status;
    call(dialsm::Outcome(status));
    CHECK(status.code() == code && !status.message().empty());
}

/* What an earlier call left in a status or in a result says nothing of a later one. */
static void test_left_behind(const std::string &path)
{
    dialsm::Db db = dialsm::Db::open(path + ".left");
    dialsm::Status status;
    CHECK(!db.keyspace("nope", status) && !status);
    dialsm::WriteOptions options;
    options.sync(false, status);
    CHECK(status.ok());
    db.put("k", "v");
    dialsm::Entries entries;
    dialsm::Scan scan = db.scan();
    CHECK(scan.next(entries) && entries.size() == 1);
    dialsm::Scan gone = std::move(scan);
    CHECK(!scan.next(entries, status) && !status);
}

/* What was moved from stands for nothing, least of all for a default. */
static void test_moved(const std::string &path)
{
    dialsm::Db db = dialsm::Db::open(path + ".moved");
    dialsm::Keyspace one = db.create_keyspace("one"), two = std::move(one);
    dialsm::Snapshot then = db.snapshot(), now = std::move(then);
    CHECK(two.is_usable() && two.name() == "one" && !one.is_usable() && one.name().empty());
    const dialsm::Code bad = DIALSM_INVALID_ARGUMENT;
    dialsm::Batch batch;
    dialsm::Pinned pinned;
    fails(bad, [&](auto out) { db.put("k", "v", one, {}, out); });
    fails(bad, [&](auto out) { db.erase("k", one, {}, out); });
    fails(bad, [&](auto out) { db.single_delete("k", one, {}, out); });
    fails(bad, [&](auto out) { db.erase_range("a", "z", one, {}, out); });
    fails(bad, [&](auto out) { db.merge("k", "v", one, {}, out); });
    fails(bad, [&](auto out) { db.get("k", one, {}, out); });
    fails(bad, [&](auto out) { db.get("k", pinned, one, {}, out); });
    fails(bad, [&](auto out) { CHECK(db.multi_get({"k"}, one, {}, out).empty()); });
    fails(bad, [&](auto out) { CHECK(db.iterate_all({&two, &one}, {}, out).empty()); });
    fails(bad, [&](auto out) { db.flush(one, {}, out); });
    fails(bad, [&](auto out) { db.compact(one, {}, out); });
    fails(bad, [&](auto out) { db.compact("a", "z", one, {}, out); });
    fails(bad, [&](auto out) { db.set_options({}, one, out); });
    fails(bad, [&](auto out) { db.property("dialsm.options", one, out); });
    fails(bad, [&](auto out) { db.stalls(one, out); });
    fails(bad, [&](auto out) { db.drop_keyspace(one, out); });
    fails(bad, [&](auto out) { batch.put("k", "v", one, out); });
    fails(bad, [&](auto out) { batch.erase("k", one, out); });
    fails(bad, [&](auto out) { batch.single_delete("k", one, out); });
    fails(bad, [&](auto out) { batch.erase_range("a", "z", one, out); });
    fails(bad, [&](auto out) { batch.merge("k", "v", one, out); });
    CHECK(batch.size() == 0 && !db.get("k"));
    dialsm::Status status;
    CHECK(!db.iterate({}, one, status) && status.code() == bad);
    CHECK(!db.scan({}, {}, one, status) && status.code() == bad);
    CHECK(thrown([&] { db.iterate({}, one); }) == bad && thrown([&] { db.scan({}, {}, one); }) == bad);

    dialsm::ReadOptions reads;
    fails(bad, [&](auto out) { reads.snapshot(then, out); });
    reads.snapshot(now);
    dialsm::ReadOptions other_reads = std::move(reads);
    fails(bad, [&](auto out) { db.get("k", {}, reads, out); });
    fails(bad, [&](auto out) { reads.fill_cache(false, out); });
    dialsm::WriteOptions writes, other_writes = std::move(writes);
    fails(bad, [&](auto out) { db.put("k", "v", {}, writes, out); });
    fails(bad, [&](auto out) { db.write(batch, writes, out); });
    dialsm::FlushOptions flush, other_flush = std::move(flush);
    fails(bad, [&](auto out) { db.flush({}, flush, out); });
    fails(bad, [&](auto out) { db.flush_all(flush, out); });
    dialsm::CompactOptions compact, other_compact = std::move(compact);
    fails(bad, [&](auto out) { db.compact({}, compact, out); });
    dialsm::ScanOptions scan, other_scan = std::move(scan);
    CHECK(!db.scan(scan, {}, {}, status) && status.code() == bad);
    dialsm::Batch other_batch = std::move(batch);
    fails(bad, [&](auto out) { db.write(batch, {}, out); });
    fails(bad, [&](auto out) { batch.put("k", "v", {}, out); });
    dialsm::Options options, other_options = std::move(options);
    CHECK(!dialsm::Db::open(path + ".nowhere", options, status) && status.code() == bad);
    CHECK(!db.create_keyspace("x", options, status) && status.code() == bad);
    fails(bad, [&](auto out) { options.set("shards", 1, out); });
    fails(bad, [&](auto out) { other_options.add_keyspace("k", options, out); });
    fails(bad, [&](auto out) { options.copy().validate(out); });
    dialsm::MergeOperator counter = dialsm::MergeOperator::counter(), other_counter = std::move(counter);
    fails(bad, [&](auto out) { other_options.merge_operator(counter, out); });
    dialsm::Comparator order = dialsm::Comparator::reverse_bytewise(), other_order = std::move(order);
    fails(bad, [&](auto out) { other_options.comparator(order, out); });
    dialsm::PrefixExtractor colon = dialsm::PrefixExtractor::delimiter(':'), other_colon = std::move(colon);
    fails(bad, [&](auto out) { other_options.prefix_extractor(colon, out); });
    fails(bad, [&](auto out) { options.add_event_listener([](auto &) {}, out); });
    dialsm::Cancel cancel, other_cancel = std::move(cancel);
    fails(bad, [&](auto out) { other_compact.cancel(cancel, out); });
    dialsm::Iterator iterator = db.iterate(), other_iterator = std::move(iterator);
    dialsm::Entries entries;
    fails(bad, [&](auto out) { iterator.seek_to_first(out); });
    fails(bad, [&](auto out) { iterator.next(out); });
    fails(bad, [&](auto out) { iterator.seek("k", out); });
    fails(bad, [&](auto out) { iterator.status(out); });
    fails(bad, [&](auto out) { iterator.pin_value(pinned, out); });
    fails(bad, [&](auto out) { iterator.next_batch(entries, 1, 0, out); });
    dialsm::Scan first = db.scan(), second = std::move(first);
    fails(bad, [&](auto out) { first.next(entries, out); });
    dialsm::Db moved = std::move(db);
    fails(bad, [&](auto out) { db.put("k", "v", {}, {}, out); });
    fails(bad, [&](auto out) { db.close(out); });

    // An object that was moved from may be given another value, and is one again.
    one = moved.create_keyspace("two");
    moved.put("k", "v", one);
    CHECK(moved.get("k", one) == "v" && !moved.get("k", two));
}

static void test_scans(const std::string &path)
{
    dialsm::Db db = dialsm::Db::open(path + ".scans");
    for (int i = 0; i < 300; i++)
        db.put("key " + std::to_string(1000 + i), "value " + std::to_string(i));
    dialsm::Entries entries;
    std::size_t seen = 0;
    dialsm::Scan scan = db.scan(dialsm::ScanOptions().range("key 1100", "key 1200").batch_entries_max(30));
    while (scan.next(entries)) {
        CHECK(entries.size() <= 30 && entries[0].key == "key " + std::to_string(1100 + seen));
        for (auto [key, value] : entries)
            CHECK(value == "value " + std::to_string(100 + seen++));
    }
    CHECK(seen == 100 && entries.empty());
    dialsm::ScanOptions backward;
    backward.backward().entries_max(2).batch_bytes(1).long_bytes(1).ahead_bytes_max(1);
    dialsm::Scan last = db.scan(backward);
    CHECK(last.next(entries) && entries[0].key == "key 1299");

    dialsm::Iterator iterator = db.iterate(dialsm::ReadOptions().verify_checksums(true).readahead_bytes(4096));
    iterator.seek("key 1290");
    dialsm::Pinned pinned;
    iterator.pin_value(pinned);
    CHECK(iterator.next_batch(entries, 7) && entries.size() == 7 && iterator.key() == "key 1297");
    CHECK(iterator.next_batch(entries, 0, 1 << 20) && entries.size() == 3 && !iterator.valid());
    CHECK(!iterator.next_batch(entries, 1) && *pinned == "value 290");
    iterator.status();
    pinned.clear();
    CHECK(!pinned);
    fails(DIALSM_INVALID_ARGUMENT, [&](auto out) { iterator.next_batch(entries, 0, 0, out); });
    fails(DIALSM_INVALID_ARGUMENT, [&](auto out) { iterator.pin_value(pinned, out); });
    fails(DIALSM_TOO_LARGE, [&](auto out) { iterator.seek(std::string(70000, 'k'), out); });
    dialsm::Keyspace other = db.create_keyspace("other");
    auto iterators = db.iterate_all({nullptr, &other});
    CHECK(iterators.size() == 2);
    iterators[0].seek_to_first();
    iterators[1].seek_to_first();
    CHECK(iterators[0].valid() && !iterators[1].valid());
}

static void test_upkeep(const std::string &path)
{
    const std::string here = path + ".upkeep";
    {
        dialsm::Options options;
        options.set("shards", 2).set_text("block_bytes = 8K\nclues_max = 7");
        CHECK(options.get("clues_max") == "7" && options.text().find("clues_max = 7") != std::string::npos);
        options.validate();
        CHECK(options.copy().get("block_bytes") == "8K" && dialsm::Options::names().size() > 10);
        fails(DIALSM_INVALID_ARGUMENT, [&](auto out) { CHECK(options.get("no such", out).empty()); });
        fails(DIALSM_INVALID_ARGUMENT, [&](auto out) { options.set_text("nonsense", out); });
        dialsm::Db db = dialsm::Db::open(here, options);
        db.create_keyspace("second");
        db.put("once", "v");
        db.single_delete("once");
        dialsm::Batch batch;
        batch.put("twice", "v").single_delete("twice");
        std::string ops;
        batch.each([&](auto op, auto, auto key, auto) { ops += std::to_string(op) + std::string(key) + " "; });
        CHECK(ops == "1twice 3twice ");
        db.write(dialsm::Batch::from_data(batch.data()));
        CHECK(!db.get("once") && !db.get("twice"));
        dialsm::Status status;
        CHECK(!dialsm::Batch::from_data("nonsense", status) && !status);
        db.put("k", "v");
        db.flush({}, dialsm::FlushOptions().wait(true).allow_stall(true).atomic());
        db.flush_all();
        dialsm::Cancel cancel;
        dialsm::CompactOptions compact;
        compact.rewrite_bottom().target_level(-1).cancel(cancel);
        fails(DIALSM_INVALID_ARGUMENT, [&](auto out) { compact.target_level(-7, out); });
        db.compact("a", "z", {}, compact);
        std::thread([&] { cancel.cancel(); }).join();
        fails(DIALSM_CANCELLED, [&](auto out) { db.compact({}, compact, out); });
        db.wait_until_idle();
        CHECK(db.is_idle());
        std::uint64_t told = 0;
        CHECK(db.verify([&](auto done, auto) { told = done; }).entries > 0 && told > 0 && db.verify().tables > 0);
        db.set_options({{"redirect", "false"}, {"clues_max", "9"}});
        CHECK(db.property("dialsm.options").find("clues_max = 9") != std::string::npos);
        fails(DIALSM_INVALID_ARGUMENT, [&](auto out) { db.set_options({{"shards", "8"}}, {}, out); });
        CHECK(db.counter("writes") > 0 && !db.statistics().empty() && !dialsm::Db::properties().empty());
        fails(DIALSM_NOT_FOUND, [&](auto out) { db.counter("no such", out); });
        CHECK(db.keyspaces() == std::vector<std::string>({"default", "second"}));
        CHECK(db.keyspace("second").shards() >= 1 && !db.keyspace("third", status) && !status);
        CHECK(db.snapshot(status) && status);
    }
    CHECK(dialsm::Db::list_keyspaces(here).size() == 2);
    CHECK(dialsm::Options::load(here).get("shards") == "2");
    dialsm::Upgrade formats = dialsm::Db::upgrade(here);
    CHECK(formats.from == formats.to && formats.to > 0);
    dialsm::Status status;
    CHECK(dialsm::Db::open_read_only(here, {}, status) && status);
    dialsm::Db::destroy(here);
    CHECK(!dialsm::Db::open_read_only(here, {}, status) && status.code() == DIALSM_NOT_FOUND);
    CHECK(!dialsm::Options::load(here, status) && !status);
    fails(DIALSM_NOT_FOUND, [&](auto out) { dialsm::Db::upgrade(here, out); });
    fails(DIALSM_NOT_FOUND, [&](auto out) { CHECK(dialsm::Db::list_keyspaces(here, out).empty()); });
    fails(DIALSM_INVALID_ARGUMENT, [&](auto out) { dialsm::Db::destroy("", out); });
}

static void test_built_in(const std::string &path)
{
    dialsm::Options own = dialsm::Options::for_keyspace();
    own.merge_operator(dialsm::MergeOperator::append(","));
    own.prefix_extractor(dialsm::PrefixExtractor("test.colon", [](std::string_view key) {
        std::size_t at = key.find(':');
        return at == key.npos ? std::nullopt : std::optional(key.substr(0, at));
    }));
    dialsm::Options options;
    options.merge_operator(dialsm::MergeOperator::counter()).comparator(dialsm::Comparator::reverse_bytewise());
    options.prefix_extractor(dialsm::PrefixExtractor::first_bytes(2, true)).add_keyspace("joined", own);
    dialsm::Db db = dialsm::Db::open(path + ".builtin", options);
    dialsm::Keyspace joined = db.keyspace("joined");
    const std::string_view one("\1\0\0\0\0\0\0\0", 8);
    db.merge("n", one);
    db.merge("n", one);
    CHECK(db.get("n")->front() == 2);
    db.merge("a:1", "x", joined);
    db.merge("a:1", "y", joined);
    db.put("b:1", "", joined);
    CHECK(db.get("a:1", joined) == "x,y");
    dialsm::Iterator iterator = db.iterate(dialsm::ReadOptions().prefix_same_as_start(), joined);
    iterator.seek("a:");
    CHECK(iterator.valid() && iterator.key() == "a:1");
    iterator.next();
    CHECK(!iterator.valid());

    const auto partial = [](auto, auto &operands) { return std::optional<std::string>(operands.back()); };
    const auto full = [](auto, auto, auto &operands) { return std::optional<std::string>(operands.back()); };
    dialsm::MergeOperator last("test.last", full, partial);
    CHECK(last.is_usable());
    fails(DIALSM_INVALID_ARGUMENT, [&](auto out) { CHECK(!dialsm::MergeOperator("dialsm.x", full, out).is_usable()); });
    fails(DIALSM_INVALID_ARGUMENT, [&](auto out) {
        CHECK(!dialsm::Comparator("", [](auto a, auto b) { return a.compare(b); }, true, out).is_usable());
    });
    fails(DIALSM_INVALID_ARGUMENT, [&](auto out) {
        CHECK(!dialsm::PrefixExtractor("", [](auto key) { return std::optional(key); }, out).is_usable());
    });
    dialsm::Status status;
    CHECK(!dialsm::PrefixExtractor::first_bytes(1 << 20, false, status) && !status);
    CHECK(!dialsm::MergeOperator::append(std::string(70000, ','), status) && status.code() == DIALSM_TOO_LARGE);
    fails(DIALSM_TOO_LARGE, [&](auto out) { dialsm::ReadOptions().from(std::string(70000, 'k'), out); });
}

static void test_events(const std::string &path)
{
    auto names = std::make_shared<std::vector<std::string>>();
    dialsm::Options options;
    options.set("shards", 1).add_event_listener([names](const dialsm::Event &event) {
        CHECK(event.wall_us != 0);
        if (event.name == "flush_end")
            CHECK(event.severity == DIALSM_SEVERITY_INFO && event.fields.find("keyspace=default") != event.fields.npos);
        names->emplace_back(event.name);
    });
    dialsm::Db db = dialsm::Db::open(path + ".events", options);
    options = dialsm::Options();
    db.put("k", "v");
    db.flush();
    db.close();
    CHECK(names.use_count() == 1 && names->back() == "closed");
    const auto begin = std::find(names->begin(), names->end(), "flush_begin");
    CHECK(std::find(begin, names->end(), "flush_end") != names->end());
    dialsm::Options for_keyspace = dialsm::Options::for_keyspace();
    fails(DIALSM_INVALID_ARGUMENT, [&](auto out) { for_keyspace.add_event_listener([](auto &) {}, out); });
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    const std::string path = std::string(argv[1]) + "/cpp";
    test_calls(path);
    test_failures(path);
    test_callbacks(path);
    test_moved(path);
    test_left_behind(path);
    test_scans(path);
    test_upkeep(path);
    test_built_in(path);
    test_events(path);
    last.db = dialsm::Db::open(path + ".last");
    last.db->close();
    std::cout << "all of it passed\n";
}
