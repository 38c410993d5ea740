// What dialsm.hpp adds to dialsm.h: ownership, views, both ways to fail. Usage: test DIRECTORY
#include "dialsm.hpp"

#include <cstdlib>
#include <iostream>
#include <locale>

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

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    const std::string path = std::string(argv[1]) + "/cpp";
    test_calls(path);
    test_failures(path);
    test_callbacks(path);
    last.db = dialsm::Db::open(path + ".last");
    last.db->close();
    std::cout << "all of it passed\n";
}
