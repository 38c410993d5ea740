/*
 * dialsm.hpp: DiaLSM for C++17 and later, over dialsm.h and nothing else.
 *
 * Objects own what they stand for and free it; they can be moved, and most not be copied. Keys and values go in as
 * std::string_view, and come out as std::string, as Pinned (held where it lies) or, from iterators, as views that
 * are valid until the iterator moves. What dialsm.h says of threads, lifetimes and NULL holds here, too.
 *
 * Failures, by choice: every call that can fail comes twice. With a Status as its last argument it throws nothing
 * and puts the outcome there; without one it throws dialsm::Error. Both may throw std::bad_alloc for memory of
 * C++'s own.
 */
#ifndef DIALSM_HPP
#define DIALSM_HPP

#include "dialsm.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <locale>
#include <memory>
#include <new>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace dialsm {

using Code = dialsm_code_t;

namespace detail {

template <typename T, void (*Free)(T *)>
struct Freer {
    void operator()(T *handle) const noexcept { Free(handle); }
};

template <typename T, void (*Free)(T *)>
using Handle = std::unique_ptr<T, Freer<T, Free>>;

template <typename T>
T *made(T *handle)
{
    if (handle == nullptr)
        throw std::bad_alloc();
    return handle;
}

inline std::string_view view(const void *data, std::size_t len) noexcept
{
    return data == nullptr ? std::string_view() : std::string_view(static_cast<const char *>(data), len);
}

} // namespace detail

/* How a call ended. One for each thread; to be given to any number of calls. */
class Status {
public:
    Status() : handle_(detail::made(dialsm_status_create())) {}

    bool ok() const noexcept { return code() == DIALSM_OK; }
    explicit operator bool() const noexcept { return ok(); }
    Code code() const noexcept { return dialsm_status_code(handle_.get()); }
    std::string_view message() const noexcept { return dialsm_status_message(handle_.get()); }
    std::optional<std::string_view> file() const noexcept
    {
        const char *path = dialsm_status_file(handle_.get());
        return path == nullptr ? std::nullopt : std::optional<std::string_view>(path);
    }
    std::optional<std::uint64_t> offset() const noexcept
    {
        std::uint64_t offset = 0;
        return dialsm_status_offset(handle_.get(), &offset) ? std::optional(offset) : std::nullopt;
    }
    int os_error() const noexcept { return dialsm_status_os_error(handle_.get()); }

    dialsm_status_t *get() noexcept { return handle_.get(); }

private:
    detail::Handle<dialsm_status_t, dialsm_status_free> handle_;
};

/* What calls without a Status throw. */
class Error : public std::runtime_error {
public:
    explicit Error(const Status &status)
        : std::runtime_error(text(status)), code_(status.code()), offset_(status.offset())
    {
        if (status.file())
            file_ = std::string(*status.file());
    }

    Code code() const noexcept { return code_; }
    const std::optional<std::string> &file() const noexcept { return file_; }
    std::optional<std::uint64_t> offset() const noexcept { return offset_; }

private:
    static std::string text(const Status &status)
    {
        std::string text = dialsm_code_name(status.code());
        text.append(": ").append(status.message());
        if (status.file())
            text.append(" [").append(*status.file()).append("]");
        return text;
    }

    Code code_;
    std::optional<std::string> file_;
    std::optional<std::uint64_t> offset_;
};

namespace detail {

/* Runs a call that takes a Status, and throws what it says. */
template <typename Call>
auto thrown(Call call)
{
    /* Not one for each thread: that one would be gone in the destructors of static objects. */
    Status status;
    if constexpr (std::is_void_v<decltype(call(status))>) {
        call(status);
        if (!status.ok())
            throw Error(status);
    } else {
        auto result = call(status);
        if (!status.ok())
            throw Error(status);
        return result;
    }
}

} // namespace detail

/* A keyspace; one without a handle is the default one. */
class Keyspace {
public:
    Keyspace() = default;
    explicit Keyspace(dialsm_keyspace_t *handle) noexcept : handle_(handle) {}

    std::uint32_t id() const noexcept { return dialsm_keyspace_id(handle_.get()); }
    std::string_view name() const noexcept
    {
        std::size_t len = 0;
        const char *name = dialsm_keyspace_name(handle_.get(), &len);
        return name == nullptr ? std::string_view("default") : std::string_view(name, len);
    }
    const dialsm_keyspace_t *get() const noexcept { return handle_.get(); }

private:
    detail::Handle<dialsm_keyspace_t, dialsm_keyspace_free> handle_;
};

class Snapshot {
public:
    explicit Snapshot(dialsm_snapshot_t *handle) noexcept : handle_(handle) {}
    std::uint64_t sequence() const noexcept { return dialsm_snapshot_sequence(handle_.get()); }
    const dialsm_snapshot_t *get() const noexcept { return handle_.get(); }

private:
    detail::Handle<dialsm_snapshot_t, dialsm_snapshot_free> handle_;
};

/* A value that is held where it lies, or none. */
class Pinned {
public:
    Pinned() : handle_(detail::made(dialsm_pinned_create())) {}
    explicit operator bool() const noexcept { return dialsm_pinned_value(handle_.get(), nullptr) != nullptr; }
    std::string_view value() const noexcept
    {
        std::size_t len = 0;
        const void *data = dialsm_pinned_value(handle_.get(), &len);
        return detail::view(data, len);
    }
    std::string_view operator*() const noexcept { return value(); }
    dialsm_pinned_t *get() noexcept { return handle_.get(); }

private:
    detail::Handle<dialsm_pinned_t, dialsm_pinned_free> handle_;
};

/* An order of keys: below 0, 0 or above 0, as std::string_view::compare gives. An exception ends the program. */
class Comparator {
public:
    using Function = std::function<int(std::string_view, std::string_view)>;

    /* `equal_is_identical`: keys that compare equal are always the same bytes. */
    Comparator(std::string_view name, Function function, bool equal_is_identical)
    {
        auto state = std::make_unique<Function>(std::move(function));
        detail::thrown([&](Status &status) {
            dialsm_comparator_t *made = nullptr;
            dialsm_comparator_create(name.data(), name.size(), state.release(), &compare, equal_is_identical,
                                     &destroy, &made, status.get());
            handle_.reset(made);
        });
    }
    const dialsm_comparator_t *get() const noexcept { return handle_.get(); }

private:
    static int compare(void *state, const std::uint8_t *a, std::size_t a_len, const std::uint8_t *b,
                       std::size_t b_len) noexcept
    {
        return (*static_cast<Function *>(state))(detail::view(a, a_len), detail::view(b, b_len));
    }
    static void destroy(void *state) noexcept { delete static_cast<Function *>(state); }
    detail::Handle<dialsm_comparator_t, dialsm_comparator_free> handle_;
};

/* A merge operator: the value that operands, oldest first, make of a base. Nothing, or an exception: they do not
 * fit, and the key can't be read. */
class MergeOperator {
public:
    using Function = std::function<std::optional<std::string>(
        std::string_view key, std::optional<std::string_view> base, const std::vector<std::string_view> &operands)>;

    MergeOperator(std::string_view name, Function function)
    {
        auto state = std::make_unique<Function>(std::move(function));
        detail::thrown([&](Status &status) {
            dialsm_merge_operator_t *made = nullptr;
            dialsm_merge_operator_create(name.data(), name.size(), state.release(), &merge, nullptr, &destroy, &made,
                                         status.get());
            handle_.reset(made);
        });
    }
    const dialsm_merge_operator_t *get() const noexcept { return handle_.get(); }

private:
    static int merge(void *state, const std::uint8_t *key, std::size_t key_len, const std::uint8_t *base,
                     std::size_t base_len, std::size_t count, const std::uint8_t *const *operands,
                     const std::size_t *lens, dialsm_merge_result_t *result) noexcept
    try {
        std::vector<std::string_view> views;
        for (std::size_t i = 0; i < count; i++)
            views.push_back(detail::view(operands[i], lens[i]));
        auto below = base == nullptr ? std::nullopt : std::optional<std::string_view>(detail::view(base, base_len));
        auto made = (*static_cast<Function *>(state))(detail::view(key, key_len), below, views);
        return made && dialsm_merge_result_set(result, made->data(), made->size()) == DIALSM_OK;
    } catch (...) {
        return 0;
    }
    static void destroy(void *state) noexcept { delete static_cast<Function *>(state); }
    detail::Handle<dialsm_merge_operator_t, dialsm_merge_operator_free> handle_;
};

/* Setters of the options below return the object, so that they can be chained. */
class Options {
public:
    Options() : handle_(detail::made(dialsm_options_create())) {}
    static Options for_keyspace() { return Options(detail::made(dialsm_options_create_for_keyspace())); }
    static Options for_machine(std::size_t cores, std::uint64_t memory_bytes)
    {
        return Options(detail::made(dialsm_options_create_for_machine(cores, memory_bytes)));
    }

    /* By name, as text; throws Error for what is no option or no value of it. */
    Options &set(std::string_view name, std::string_view value)
    {
        detail::thrown([&](Status &status) {
            dialsm_options_set(get(), name.data(), name.size(), value.data(), value.size(), status.get());
        });
        return *this;
    }
    Options &set(std::string_view name, bool value) { return set(name, std::string_view(value ? "true" : "false")); }
    Options &set(std::string_view name, const char *value) { return set(name, std::string_view(value)); }
    template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
    Options &set(std::string_view name, Number value)
    {
        /* All digits, no exponent, and a point whatever the program's locale is. */
        std::ostringstream text;
        text.imbue(std::locale::classic());
        text.precision(std::numeric_limits<Number>::max_digits10);
        text << std::fixed << +value;
        return set(name, std::string_view(text.str()));
    }
    Options &add_keyspace(std::string_view name, const Options &own)
    {
        detail::thrown([&](Status &status) {
            dialsm_options_add_keyspace(get(), name.data(), name.size(), own.get(), status.get());
        });
        return *this;
    }
    Options &merge_operator(const MergeOperator &merge_operator)
    {
        dialsm_options_set_merge_operator(get(), merge_operator.get(), nullptr);
        return *this;
    }
    Options &comparator(const Comparator &comparator)
    {
        dialsm_options_set_comparator(get(), comparator.get(), nullptr);
        return *this;
    }
    Options &prefix_extractor(const dialsm_prefix_extractor_t *prefix_extractor)
    {
        dialsm_options_set_prefix_extractor(get(), prefix_extractor, nullptr);
        return *this;
    }
    dialsm_options_t *get() noexcept { return handle_.get(); }
    const dialsm_options_t *get() const noexcept { return handle_.get(); }

private:
    explicit Options(dialsm_options_t *handle) noexcept : handle_(handle) {}
    detail::Handle<dialsm_options_t, dialsm_options_free> handle_;
};

class WriteOptions {
public:
    WriteOptions &sync(bool on = true) { return dialsm_write_options_set_sync(own(), on), *this; }
    WriteOptions &disable_log(bool on = true)
    {
        return dialsm_write_options_set_disable_log(own(), on), *this;
    }
    WriteOptions &no_slowdown(bool on = true)
    {
        return dialsm_write_options_set_no_slowdown(own(), on), *this;
    }
    WriteOptions &timeout_ns(std::uint64_t ns)
    {
        return dialsm_write_options_set_timeout_ns(own(), ns), *this;
    }
    const dialsm_write_options_t *get() const noexcept { return handle_.get(); }

private:
    /* Made when something is set: without, the defaults hold. */
    dialsm_write_options_t *own()
    {
        if (handle_ == nullptr)
            handle_.reset(detail::made(dialsm_write_options_create()));
        return handle_.get();
    }
    detail::Handle<dialsm_write_options_t, dialsm_write_options_free> handle_;
};

class ReadOptions {
public:
    ReadOptions &snapshot(const Snapshot &snapshot)
    {
        return dialsm_read_options_set_snapshot(own(), snapshot.get()), *this;
    }
    ReadOptions &from(std::string_view key)
    {
        return checked(dialsm_read_options_set_lower_bound(own(), key.data(), key.size()));
    }
    ReadOptions &to(std::string_view key)
    {
        return checked(dialsm_read_options_set_upper_bound(own(), key.data(), key.size()));
    }
    ReadOptions &prefix(std::string_view prefix)
    {
        return checked(dialsm_read_options_set_prefix(own(), prefix.data(), prefix.size()));
    }
    ReadOptions &prefix_same_as_start(bool on = true)
    {
        return dialsm_read_options_set_prefix_same_as_start(own(), on), *this;
    }
    ReadOptions &fill_cache(bool on) { return dialsm_read_options_set_fill_cache(own(), on), *this; }
    ReadOptions &timeout_ns(std::uint64_t ns)
    {
        return dialsm_read_options_set_timeout_ns(own(), ns), *this;
    }
    const dialsm_read_options_t *get() const noexcept { return handle_.get(); }

private:
    /* Made when something is set: without, the defaults hold. */
    dialsm_read_options_t *own()
    {
        if (handle_ == nullptr)
            handle_.reset(detail::made(dialsm_read_options_create()));
        return handle_.get();
    }
    ReadOptions &checked(Code code)
    {
        if (code != DIALSM_OK)
            throw std::invalid_argument(dialsm_code_name(code));
        return *this;
    }
    detail::Handle<dialsm_read_options_t, dialsm_read_options_free> handle_;
};

/* Operations that are written together. Its calls throw; they fail only for what is too large. */
class Batch {
public:
    Batch() : handle_(detail::made(dialsm_batch_create())) {}

    Batch &put(std::string_view key, std::string_view value, const Keyspace &in = {})
    {
        return add([&](Status &s) {
            dialsm_batch_put(get(), in.get(), key.data(), key.size(), value.data(), value.size(), s.get());
        });
    }
    Batch &erase(std::string_view key, const Keyspace &in = {})
    {
        return add([&](Status &s) { dialsm_batch_delete(get(), in.get(), key.data(), key.size(), s.get()); });
    }
    Batch &erase_range(std::string_view from, std::string_view to, const Keyspace &in = {})
    {
        return add([&](Status &s) {
            dialsm_batch_delete_range(get(), in.get(), from.data(), from.size(), to.data(), to.size(), s.get());
        });
    }
    Batch &merge(std::string_view key, std::string_view operand, const Keyspace &in = {})
    {
        return add([&](Status &s) {
            dialsm_batch_merge(get(), in.get(), key.data(), key.size(), operand.data(), operand.size(), s.get());
        });
    }
    std::uint32_t size() const noexcept { return dialsm_batch_count(handle_.get()); }
    void clear() noexcept { dialsm_batch_clear(handle_.get()); }
    dialsm_batch_t *get() noexcept { return handle_.get(); }
    const dialsm_batch_t *get() const noexcept { return handle_.get(); }

private:
    template <typename Call>
    Batch &add(Call call)
    {
        detail::thrown(call);
        return *this;
    }
    detail::Handle<dialsm_batch_t, dialsm_batch_free> handle_;
};

/* A key and its value, valid until the iterator that they come from moves. */
struct Entry {
    std::string_view key;
    std::string_view value;
};

/* A cursor. `for (auto [key, value] : iterator)` begins at the first key. */
class Iterator {
public:
    explicit Iterator(dialsm_iter_t *handle) noexcept : handle_(handle) {}

    bool valid() const noexcept { return dialsm_iter_valid(handle_.get()); }
    std::string_view key() const noexcept
    {
        std::size_t len = 0;
        const void *data = dialsm_iter_key(handle_.get(), &len);
        return detail::view(data, len);
    }
    std::string_view value() const noexcept
    {
        std::size_t len = 0;
        const void *data = dialsm_iter_value(handle_.get(), &len);
        return detail::view(data, len);
    }

    void seek_to_first(Status &s) noexcept { dialsm_iter_seek_to_first(handle_.get(), s.get()); }
    void seek_to_last(Status &s) noexcept { dialsm_iter_seek_to_last(handle_.get(), s.get()); }
    void seek(std::string_view key, Status &s) noexcept
    {
        dialsm_iter_seek(handle_.get(), key.data(), key.size(), s.get());
    }
    void seek_for_prev(std::string_view key, Status &s) noexcept
    {
        dialsm_iter_seek_for_prev(handle_.get(), key.data(), key.size(), s.get());
    }
    void next(Status &s) noexcept { dialsm_iter_next(handle_.get(), s.get()); }
    void prev(Status &s) noexcept { dialsm_iter_prev(handle_.get(), s.get()); }

    void seek_to_first() { go(dialsm_iter_seek_to_first(handle_.get(), nullptr)); }
    void seek_to_last() { go(dialsm_iter_seek_to_last(handle_.get(), nullptr)); }
    void seek(std::string_view key) { go(dialsm_iter_seek(handle_.get(), key.data(), key.size(), nullptr)); }
    void seek_for_prev(std::string_view key)
    {
        go(dialsm_iter_seek_for_prev(handle_.get(), key.data(), key.size(), nullptr));
    }
    void next() { go(dialsm_iter_next(handle_.get(), nullptr)); }
    void prev() { go(dialsm_iter_prev(handle_.get(), nullptr)); }

    struct End {};
    class Position {
    public:
        using value_type = Entry;
        using difference_type = std::ptrdiff_t;
        using reference = Entry;
        using pointer = void;
        using iterator_category = std::input_iterator_tag;

        explicit Position(Iterator &iterator) noexcept : iterator_(&iterator) {}
        Entry operator*() const noexcept { return {iterator_->key(), iterator_->value()}; }
        Position &operator++() { return iterator_->next(), *this; }
        void operator++(int) { iterator_->next(); }
        friend bool operator==(const Position &at, End) noexcept { return !at.iterator_->valid(); }
        friend bool operator!=(const Position &at, End) noexcept { return at.iterator_->valid(); }

    private:
        Iterator *iterator_;
    };
    Position begin()
    {
        seek_to_first();
        return Position(*this);
    }
    End end() const noexcept { return {}; }

    dialsm_iter_t *get() noexcept { return handle_.get(); }

private:
    /* No Status is made where nothing fails. */
    void go(Code code)
    {
        if (code == DIALSM_OK)
            return;
        Status status;
        if (dialsm_iter_status(handle_.get(), status.get()) == DIALSM_OK)
            throw std::invalid_argument(dialsm_code_name(code));
        throw Error(status);
    }
    detail::Handle<dialsm_iter_t, dialsm_iter_free> handle_;
};

/* An open database. It closes with the last object that hangs on it, without a word; close() says how. */
class Db {
public:
    static Db open(std::string_view path, const Options &options = {})
    {
        return Db(detail::thrown([&](Status &status) { return opened(path, options, status); }));
    }
    static std::optional<Db> open(std::string_view path, const Options &options, Status &status)
    {
        dialsm_db_t *db = opened(path, options, status);
        return db == nullptr ? std::nullopt : std::optional<Db>(Db(db));
    }
    static Db open_read_only(std::string_view path, const Options &options = {})
    {
        return Db(detail::thrown([&](Status &status) {
            dialsm_db_t *db = nullptr;
            dialsm_open_read_only(path.data(), path.size(), options.get(), &db, status.get());
            return db;
        }));
    }
    static void destroy(std::string_view path)
    {
        detail::thrown([&](Status &status) { dialsm_destroy(path.data(), path.size(), status.get()); });
    }

    void close(Status &s) noexcept { dialsm_close(get(), s.get()); }
    void close()
    {
        detail::thrown([&](Status &s) { close(s); });
    }

    Keyspace create_keyspace(std::string_view name, const Options &options = Options::for_keyspace())
    {
        return Keyspace(detail::thrown([&](Status &status) {
            dialsm_keyspace_t *keyspace = nullptr;
            dialsm_keyspace_create(get(), name.data(), name.size(), options.get(), &keyspace, status.get());
            return keyspace;
        }));
    }
    Keyspace keyspace(std::string_view name)
    {
        return Keyspace(detail::thrown([&](Status &status) {
            dialsm_keyspace_t *keyspace = nullptr;
            dialsm_keyspace_find(get(), name.data(), name.size(), &keyspace, status.get());
            return keyspace;
        }));
    }
    void drop_keyspace(const Keyspace &keyspace)
    {
        detail::thrown([&](Status &s) { dialsm_keyspace_drop(get(), keyspace.get(), s.get()); });
    }

    void put(std::string_view key, std::string_view value, const Keyspace &in, const WriteOptions &options,
             Status &s) noexcept
    {
        dialsm_put(get(), in.get(), options.get(), key.data(), key.size(), value.data(), value.size(), s.get());
    }
    void put(std::string_view key, std::string_view value, const Keyspace &in = {}, const WriteOptions &options = {})
    {
        detail::thrown([&](Status &s) { put(key, value, in, options, s); });
    }
    void erase(std::string_view key, const Keyspace &in, const WriteOptions &options, Status &s) noexcept
    {
        dialsm_delete(get(), in.get(), options.get(), key.data(), key.size(), s.get());
    }
    void erase(std::string_view key, const Keyspace &in = {}, const WriteOptions &options = {})
    {
        detail::thrown([&](Status &s) { erase(key, in, options, s); });
    }
    void erase_range(std::string_view from, std::string_view to, const Keyspace &in, const WriteOptions &options,
                     Status &s) noexcept
    {
        dialsm_delete_range(get(), in.get(), options.get(), from.data(), from.size(), to.data(), to.size(), s.get());
    }
    void erase_range(std::string_view from, std::string_view to, const Keyspace &in = {},
                     const WriteOptions &options = {})
    {
        detail::thrown([&](Status &s) { erase_range(from, to, in, options, s); });
    }
    void merge(std::string_view key, std::string_view operand, const Keyspace &in, const WriteOptions &options,
               Status &s) noexcept
    {
        dialsm_merge(get(), in.get(), options.get(), key.data(), key.size(), operand.data(), operand.size(), s.get());
    }
    void merge(std::string_view key, std::string_view operand, const Keyspace &in = {},
               const WriteOptions &options = {})
    {
        detail::thrown([&](Status &s) { merge(key, operand, in, options, s); });
    }
    void write(const Batch &batch, const WriteOptions &options, Status &s) noexcept
    {
        dialsm_write(get(), options.get(), batch.get(), s.get());
    }
    void write(const Batch &batch, const WriteOptions &options = {})
    {
        detail::thrown([&](Status &s) { write(batch, options, s); });
    }

    /* A copy of the value, or nothing. */
    std::optional<std::string> get(std::string_view key, const Keyspace &in, const ReadOptions &options, Status &s)
    {
        Pinned pinned;
        get(key, pinned, in, options, s);
        return pinned ? std::optional<std::string>(pinned.value()) : std::nullopt;
    }
    std::optional<std::string> get(std::string_view key, const Keyspace &in = {}, const ReadOptions &options = {})
    {
        return detail::thrown([&](Status &s) { return get(key, in, options, s); });
    }
    /* Without a copy. */
    void get(std::string_view key, Pinned &into, const Keyspace &in, const ReadOptions &options, Status &s) noexcept
    {
        dialsm_get_pinned(get(), in.get(), options.get(), key.data(), key.size(), into.get(), s.get());
    }
    void get(std::string_view key, Pinned &into, const Keyspace &in = {}, const ReadOptions &options = {})
    {
        detail::thrown([&](Status &s) { get(key, into, in, options, s); });
    }
    std::vector<std::optional<std::string>> multi_get(const std::vector<std::string_view> &keys,
                                                      const Keyspace &in = {}, const ReadOptions &options = {})
    {
        std::vector<const void *> starts;
        std::vector<std::size_t> lens;
        for (std::string_view key : keys) {
            starts.push_back(key.data());
            lens.push_back(key.size());
        }
        detail::Handle<dialsm_values_t, dialsm_values_free> values(detail::made(dialsm_values_create()));
        detail::thrown([&](Status &s) {
            dialsm_multi_get(get(), in.get(), options.get(), keys.size(), starts.data(), lens.data(), values.get(),
                             s.get());
        });
        std::vector<std::optional<std::string>> found(keys.size());
        for (std::size_t i = 0; i < keys.size(); i++) {
            std::size_t len = 0;
            if (const void *data = dialsm_values_get(values.get(), i, &len))
                found[i] = std::string(detail::view(data, len));
        }
        return found;
    }

    Snapshot snapshot()
    {
        return Snapshot(detail::thrown([&](Status &status) {
            dialsm_snapshot_t *snapshot = nullptr;
            dialsm_snapshot_create(get(), &snapshot, status.get());
            return snapshot;
        }));
    }
    Iterator iterate(const ReadOptions &options = {}, const Keyspace &in = {})
    {
        return Iterator(detail::thrown([&](Status &status) {
            dialsm_iter_t *iter = nullptr;
            dialsm_iter_create(get(), in.get(), options.get(), &iter, status.get());
            return iter;
        }));
    }

    void flush(const Keyspace &in = {})
    {
        detail::thrown([&](Status &s) { dialsm_flush(get(), in.get(), nullptr, s.get()); });
    }
    void sync()
    {
        detail::thrown([&](Status &s) { dialsm_sync(get(), s.get()); });
    }
    void compact(const Keyspace &in = {})
    {
        detail::thrown(
            [&](Status &s) { dialsm_compact_range(get(), in.get(), nullptr, nullptr, 0, nullptr, 0, s.get()); });
    }
    void checkpoint(std::string_view target_dir)
    {
        detail::thrown([&](Status &s) { dialsm_checkpoint(get(), target_dir.data(), target_dir.size(), s.get()); });
    }
    void rollback()
    {
        detail::thrown([&](Status &s) { dialsm_rollback(get(), s.get()); });
    }
    dialsm_stalls_t stalls(const Keyspace &in = {})
    {
        dialsm_stalls_t stalls{};
        stalls.size = sizeof stalls;
        detail::thrown([&](Status &s) { dialsm_stalls(get(), in.get(), &stalls, s.get()); });
        return stalls;
    }
    dialsm_clues_t clues()
    {
        dialsm_clues_t clues{};
        clues.size = sizeof clues;
        detail::thrown([&](Status &s) { dialsm_clues(get(), &clues, s.get()); });
        return clues;
    }
    std::string statistics_json()
    {
        return text([&](char **json, std::size_t *len, Status &s) { dialsm_statistics_json(get(), json, len, s.get()); });
    }
    std::string property(std::string_view name, const Keyspace &in = {})
    {
        return text([&](char **value, std::size_t *len, Status &s) {
            dialsm_property(get(), in.get(), name.data(), name.size(), value, len, s.get());
        });
    }

    dialsm_db_t *get() noexcept { return handle_.get(); }

private:
    explicit Db(dialsm_db_t *handle) noexcept : handle_(handle) {}
    static dialsm_db_t *opened(std::string_view path, const Options &options, Status &status) noexcept
    {
        dialsm_db_t *db = nullptr;
        dialsm_open(path.data(), path.size(), options.get(), &db, status.get());
        return db;
    }
    template <typename Call>
    static std::string text(Call call)
    {
        char *text = nullptr;
        std::size_t len = 0;
        detail::thrown([&](Status &s) { call(&text, &len, s); });
        std::unique_ptr<char, void (*)(void *)> owned(text, dialsm_free);
        return std::string(text, len);
    }
    detail::Handle<dialsm_db_t, dialsm_db_free> handle_;
};

} // namespace dialsm

#endif
