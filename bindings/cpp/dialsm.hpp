/*
 * dialsm.hpp: DiaLSM for C++17 and later, over dialsm.h and nothing else.
 *
 * Objects own what they stand for and free it; they can be moved, and most not be copied. Keys and values go in as
 * std::string_view, and come out as std::string, as Pinned (held where it lies) or, from iterators, as views that
 * are valid until the iterator moves. What dialsm.h says of threads, lifetimes and NULL holds here, too.
 *
 * Failures, by choice: every call that can fail takes a Status as its last argument. With one it throws nothing and
 * puts the outcome there; what it would return is empty then. Without one it throws dialsm::Error. Both may throw
 * std::bad_alloc for memory of C++'s own.
 *
 * An object that was moved from may be assigned to and destroyed. A call that is given it fails with
 * DIALSM_INVALID_ARGUMENT; it never stands for a default.
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

/* Owns a handle, and knows that it was moved away: NULL must not stand for a default then. */
template <typename T, void (*Free)(T *)>
class Handle {
public:
    Handle() = default;
    explicit Handle(T *handle) noexcept : handle_(handle) {}
    Handle(Handle &&other) noexcept : handle_(std::move(other.handle_)), is_gone_(other.is_gone_)
    {
        other.is_gone_ = true;
    }
    Handle &operator=(Handle &&other) noexcept
    {
        if (this != &other) {
            handle_ = std::move(other.handle_);
            is_gone_ = std::exchange(other.is_gone_, true);
        }
        return *this;
    }
    T *get() const noexcept { return handle_.get(); }
    void reset(T *handle) noexcept { handle_.reset(handle); }
    bool is_gone() const noexcept { return is_gone_; }

private:
    std::unique_ptr<T, Freer<T, Free>> handle_;
    bool is_gone_ = false;
};

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

/* How a call ended. One for each thread; to be given to any number of calls. It stays where it is. */
class Status {
public:
    Status() : handle_(detail::made(dialsm_status_create())) {}
    Status(const Status &) = delete;
    Status &operator=(const Status &) = delete;

    bool ok() const noexcept { return code() == DIALSM_OK; }
    explicit operator bool() const noexcept { return ok(); }
    Code code() const noexcept { return why_ == nullptr ? dialsm_status_code(handle_.get()) : code_; }
    std::string_view message() const noexcept { return why_ == nullptr ? dialsm_status_message(handle_.get()) : why_; }
    std::optional<std::string_view> file() const noexcept
    {
        const char *path = dialsm_status_file(told());
        return path == nullptr ? std::nullopt : std::optional<std::string_view>(path);
    }
    std::optional<std::uint64_t> offset() const noexcept
    {
        std::uint64_t offset = 0;
        return dialsm_status_offset(told(), &offset) ? std::optional(offset) : std::nullopt;
    }
    int os_error() const noexcept { return dialsm_status_os_error(told()); }

    /* For a call of dialsm.h. */
    dialsm_status_t *get() noexcept
    {
        why_ = nullptr;
        return handle_.get();
    }
    /* Notes a failure that dialsm.h knows nothing of; `why` is not copied. */
    void fail(Code code, const char *why) noexcept
    {
        code_ = code;
        why_ = why;
    }

private:
    const dialsm_status_t *told() const noexcept { return why_ == nullptr ? handle_.get() : nullptr; }
    detail::Handle<dialsm_status_t, dialsm_status_free> handle_;
    Code code_ = DIALSM_OK;
    const char *why_ = nullptr;
};

/* What calls without a Status throw. */
class Error : public std::runtime_error {
public:
    explicit Error(const Status &status)
        : std::runtime_error(text(status)), code_(status.code()), offset_(status.offset()),
          os_error_(status.os_error())
    {
        if (status.file())
            file_ = std::string(*status.file());
    }

    Code code() const noexcept { return code_; }
    const std::optional<std::string> &file() const noexcept { return file_; }
    std::optional<std::uint64_t> offset() const noexcept { return offset_; }
    int os_error() const noexcept { return os_error_; }

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
    int os_error_;
};

/* The last argument of a call: the Status that its outcome goes to or, left out, an Error that is thrown. */
class Outcome {
public:
    Outcome() = default;
    Outcome(Status &status) noexcept : status_(&status) {}
    Status *status() const noexcept { return status_; }

    /* Makes the call, unless one of the objects that it uses was moved from. */
    template <typename Call, typename... Used>
    void run(Call call, const Used &...used) const
    {
        if (status_ != nullptr)
            return make(*status_, call, used...);
        /* Not one for each thread: that one would be gone in the destructors of static objects. */
        Status own;
        make(own, call, used...);
        if (!own.ok())
            throw Error(own);
    }

private:
    template <typename Call, typename... Used>
    static void make(Status &status, Call &call, const Used &...used) noexcept
    {
        if ((used.is_usable() && ...))
            call(status.get());
        else
            status.fail(DIALSM_INVALID_ARGUMENT, "an object that was moved from");
    }
    Status *status_ = nullptr;
};

namespace detail {

/* What `call` makes, which takes a Status and gives an optional; throws what the Status says. */
template <typename Call>
auto thrown(Call call)
{
    Status status;
    auto made = call(status);
    if (!status.ok())
        throw Error(status);
    return std::move(*made);
}

/* Whether several objects may be used. */
struct Usable {
    bool are_usable;
    bool is_usable() const noexcept { return are_usable; }
};

/* What a call gives that puts it into a handle; nothing where it fails. */
template <typename Object, typename Call, typename... Used>
std::optional<Object> object(Outcome outcome, Call call, const Used &...used)
{
    typename Object::Raw *handle = nullptr;
    outcome.run([&](dialsm_status_t *s) { call(&handle, s); }, used...);
    return handle == nullptr ? std::nullopt : std::optional<Object>(Object(handle));
}

/* What a call gives that puts it into memory of the caller's; "" where it fails. */
template <typename Call, typename... Used>
std::string text(Outcome outcome, Call call, const Used &...used)
{
    char *data = nullptr;
    std::size_t len = 0;
    outcome.run([&](dialsm_status_t *s) { call(&data, &len, s); }, used...);
    std::unique_ptr<char, void (*)(void *)> owned(data, dialsm_free);
    return data == nullptr ? std::string() : std::string(data, len);
}

/* The names in a list that a call gives. */
template <typename Call>
std::vector<std::string> names(Outcome outcome, Call call)
{
    dialsm_names_t *made = nullptr;
    outcome.run([&](dialsm_status_t *s) { call(&made, s); });
    Handle<dialsm_names_t, dialsm_names_free> list(made);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < dialsm_names_count(made); i++)
        names.emplace_back(dialsm_names_get(made, i));
    return names;
}

/* Starts and lengths, as dialsm.h wants them. */
struct Parts {
    explicit Parts(std::size_t count) { starts.reserve(count), lens.reserve(count); }
    void add(std::string_view part) { starts.push_back(part.data()), lens.push_back(part.size()); }
    std::vector<const char *> starts;
    std::vector<std::size_t> lens;
};

} // namespace detail

/* A keyspace; one that was made without a handle is the default one. */
class Keyspace {
public:
    using Raw = dialsm_keyspace_t;
    Keyspace() = default;
    explicit Keyspace(dialsm_keyspace_t *handle) noexcept : handle_(handle) {}

    std::uint32_t id() const noexcept { return dialsm_keyspace_id(get()); }
    std::string_view name() const noexcept
    {
        std::size_t len = 0;
        const char *name = dialsm_keyspace_name(get(), &len);
        return name != nullptr ? std::string_view(name, len) : is_usable() ? "default" : "";
    }
    /* 0 for one without a handle. */
    std::uint32_t shards() const noexcept { return dialsm_keyspace_shards(get()); }
    bool is_usable() const noexcept { return !handle_.is_gone(); }
    const dialsm_keyspace_t *get() const noexcept { return handle_.get(); }

private:
    detail::Handle<dialsm_keyspace_t, dialsm_keyspace_free> handle_;
};

class Snapshot {
public:
    using Raw = dialsm_snapshot_t;
    explicit Snapshot(dialsm_snapshot_t *handle) noexcept : handle_(handle) {}
    std::uint64_t sequence() const noexcept { return dialsm_snapshot_sequence(get()); }
    bool is_usable() const noexcept { return get() != nullptr; }
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
    void clear() noexcept { dialsm_pinned_clear(handle_.get()); }
    dialsm_pinned_t *get() noexcept { return handle_.get(); }

private:
    detail::Handle<dialsm_pinned_t, dialsm_pinned_free> handle_;
};

/* An order of keys: below 0, 0 or above 0, as std::string_view::compare gives. An exception ends the program. */
class Comparator {
public:
    using Raw = dialsm_comparator_t;
    using Function = std::function<int(std::string_view, std::string_view)>;

    /* `equal_is_identical`: keys that compare equal are always the same bytes. */
    Comparator(std::string_view name, Function function, bool equal_is_identical, Outcome outcome = {})
    {
        auto state = std::make_unique<Function>(std::move(function));
        outcome.run([&](dialsm_status_t *s) {
            dialsm_comparator_t *made = nullptr;
            dialsm_comparator_create(name.data(), name.size(), state.release(), &compare, equal_is_identical,
                                     &destroy, &made, s);
            handle_.reset(made);
        });
    }
    static Comparator reverse_bytewise()
    {
        return Comparator(detail::made(dialsm_comparator_create_reverse_bytewise()));
    }
    bool is_usable() const noexcept { return get() != nullptr; }
    const dialsm_comparator_t *get() const noexcept { return handle_.get(); }

private:
    explicit Comparator(dialsm_comparator_t *handle) noexcept : handle_(handle) {}
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
    using Raw = dialsm_merge_operator_t;
    using Operands = std::vector<std::string_view>;
    using Function = std::function<std::optional<std::string>(
        std::string_view key, std::optional<std::string_view> base, const Operands &operands)>;
    /* One operand that stands for several; nothing, or an exception, where there is none. */
    using Partial = std::function<std::optional<std::string>(std::string_view key, const Operands &operands)>;

    MergeOperator(std::string_view name, Function full, Outcome outcome = {})
        : MergeOperator(name, std::move(full), Partial(), outcome)
    {
    }
    MergeOperator(std::string_view name, Function full, Partial partial, Outcome outcome = {})
    {
        auto state = std::make_unique<State>(State{std::move(full), std::move(partial)});
        dialsm_partial_merge_fn merge_operands = state->partial ? &merge_partially : nullptr;
        outcome.run([&](dialsm_status_t *s) {
            dialsm_merge_operator_t *made = nullptr;
            dialsm_merge_operator_create(name.data(), name.size(), state.release(), &merge, merge_operands, &destroy,
                                         &made, s);
            handle_.reset(made);
        });
    }
    static MergeOperator counter() { return MergeOperator(detail::made(dialsm_merge_operator_create_counter())); }
    static std::optional<MergeOperator> append(std::string_view delimiter, Status &status)
    {
        return detail::object<MergeOperator>(status, [&](dialsm_merge_operator_t **made, dialsm_status_t *s) {
            dialsm_merge_operator_create_append(delimiter.data(), delimiter.size(), made, s);
        });
    }
    static MergeOperator append(std::string_view delimiter)
    {
        return detail::thrown([&](Status &s) { return append(delimiter, s); });
    }
    bool is_usable() const noexcept { return get() != nullptr; }
    const dialsm_merge_operator_t *get() const noexcept { return handle_.get(); }
    explicit MergeOperator(dialsm_merge_operator_t *handle) noexcept : handle_(handle) {}

private:
    struct State {
        Function full;
        Partial partial;
    };
    static Operands views(std::size_t count, const std::uint8_t *const *operands, const std::size_t *lens)
    {
        Operands views;
        for (std::size_t i = 0; i < count; i++)
            views.push_back(detail::view(operands[i], lens[i]));
        return views;
    }
    static int give(const std::optional<std::string> &made, dialsm_merge_result_t *result) noexcept
    {
        return made && dialsm_merge_result_set(result, made->data(), made->size()) == DIALSM_OK;
    }
    static int merge(void *state, const std::uint8_t *key, std::size_t key_len, const std::uint8_t *base,
                     std::size_t base_len, std::size_t count, const std::uint8_t *const *operands,
                     const std::size_t *lens, dialsm_merge_result_t *result) noexcept
    try {
        auto below = base == nullptr ? std::nullopt : std::optional<std::string_view>(detail::view(base, base_len));
        auto &full = static_cast<State *>(state)->full;
        return give(full(detail::view(key, key_len), below, views(count, operands, lens)), result);
    } catch (...) {
        return 0;
    }
    static int merge_partially(void *state, const std::uint8_t *key, std::size_t key_len, std::size_t count,
                               const std::uint8_t *const *operands, const std::size_t *lens,
                               dialsm_merge_result_t *result) noexcept
    try {
        auto &partial = static_cast<State *>(state)->partial;
        return give(partial(detail::view(key, key_len), views(count, operands, lens)), result);
    } catch (...) {
        return 0;
    }
    static void destroy(void *state) noexcept { delete static_cast<State *>(state); }
    detail::Handle<dialsm_merge_operator_t, dialsm_merge_operator_free> handle_;
};

/* Takes the prefix out of a key: a part of it, or nothing where it has none. An exception ends the program. */
class PrefixExtractor {
public:
    using Raw = dialsm_prefix_extractor_t;
    using Function = std::function<std::optional<std::string_view>(std::string_view key)>;

    PrefixExtractor(std::string_view name, Function function, Outcome outcome = {})
    {
        auto state = std::make_unique<Function>(std::move(function));
        outcome.run([&](dialsm_status_t *s) {
            dialsm_prefix_extractor_t *made = nullptr;
            dialsm_prefix_extractor_create(name.data(), name.size(), state.release(), &extract, &destroy, &made, s);
            handle_.reset(made);
        });
    }
    /* `shorter_too`: shorter keys are their own prefix, and else have none. */
    static std::optional<PrefixExtractor> first_bytes(std::size_t count, bool shorter_too, Status &status)
    {
        return detail::object<PrefixExtractor>(status, [&](dialsm_prefix_extractor_t **made, dialsm_status_t *s) {
            dialsm_prefix_extractor_create_first_bytes(count, shorter_too, made, s);
        });
    }
    static PrefixExtractor first_bytes(std::size_t count, bool shorter_too = false)
    {
        return detail::thrown([&](Status &s) { return first_bytes(count, shorter_too, s); });
    }
    static PrefixExtractor delimiter(std::uint8_t byte)
    {
        return PrefixExtractor(detail::made(dialsm_prefix_extractor_create_delimiter(byte)));
    }
    bool is_usable() const noexcept { return get() != nullptr; }
    const dialsm_prefix_extractor_t *get() const noexcept { return handle_.get(); }
    explicit PrefixExtractor(dialsm_prefix_extractor_t *handle) noexcept : handle_(handle) {}

private:
    static int extract(void *state, const std::uint8_t *data, std::size_t len, std::size_t *start,
                       std::size_t *prefix_len) noexcept
    {
        std::string_view key = detail::view(data, len);
        std::optional<std::string_view> prefix = (*static_cast<Function *>(state))(key);
        if (!prefix)
            return 0;
        /* One without bytes may lie anywhere; one that is no part of the key is found by its length. */
        *start = prefix->empty() ? 0 : static_cast<std::size_t>(prefix->data() - key.data());
        *prefix_len = prefix->size();
        return 1;
    }
    static void destroy(void *state) noexcept { delete static_cast<Function *>(state); }
    detail::Handle<dialsm_prefix_extractor_t, dialsm_prefix_extractor_free> handle_;
};

/* Something that has happened; its texts are valid within the call that it is given to only. dialsm.h says what they
 * hold. */
struct Event {
    std::string_view name;
    dialsm_severity_t severity;
    /* Microseconds since 1970. */
    std::uint64_t wall_us;
    /* "field=value field=value". */
    std::string_view fields;
};

/* Setters of the options below return the object, so that they can be chained. */
class Options {
public:
    using Raw = dialsm_options_t;
    Options() : handle_(detail::made(dialsm_options_create())) {}
    explicit Options(dialsm_options_t *handle) noexcept : handle_(handle) {}
    static Options for_keyspace() { return Options(detail::made(dialsm_options_create_for_keyspace())); }
    static Options for_machine(std::size_t cores, std::uint64_t memory_bytes)
    {
        return Options(detail::made(dialsm_options_create_for_machine(cores, memory_bytes)));
    }
    /* Those that the database in `path` was opened with last. */
    static std::optional<Options> load(std::string_view path, Status &status)
    {
        return detail::object<Options>(status, [&](dialsm_options_t **made, dialsm_status_t *s) {
            dialsm_options_load(path.data(), path.size(), made, s);
        });
    }
    static Options load(std::string_view path)
    {
        return detail::thrown([&](Status &s) { return load(path, s); });
    }
    /* Names of all options. */
    static std::vector<std::string> names()
    {
        std::vector<std::string> names;
        while (const char *name = dialsm_option_name(names.size()))
            names.emplace_back(name);
        return names;
    }
    /* A copy; one that was moved from has none, and the copy counts as moved from. */
    Options copy() const { return Options(dialsm_options_copy(get())); }

    /* By name, as text; fails for what is no option or no value of it. */
    Options &set(std::string_view name, std::string_view value, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) {
            dialsm_options_set(get(), name.data(), name.size(), value.data(), value.size(), s);
        });
        return *this;
    }
    Options &set(std::string_view name, bool value, Outcome outcome = {})
    {
        return set(name, std::string_view(value ? "true" : "false"), outcome);
    }
    Options &set(std::string_view name, const char *value, Outcome outcome = {})
    {
        return set(name, std::string_view(value), outcome);
    }
    template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
    Options &set(std::string_view name, Number value, Outcome outcome = {})
    {
        /* All digits, no exponent, and a point whatever the program's locale is. */
        std::ostringstream text;
        text.imbue(std::locale::classic());
        text.precision(std::numeric_limits<Number>::max_digits10);
        text << std::fixed << +value;
        return set(name, std::string_view(text.str()), outcome);
    }
    /* Several, one `name = value` a line: all or none. */
    Options &set_text(std::string_view lines, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_options_set_text(get(), lines.data(), lines.size(), s); });
        return *this;
    }
    std::string get(std::string_view name, Outcome outcome = {}) const
    {
        return detail::text(outcome, [&](char **value, std::size_t *len, dialsm_status_t *s) {
            dialsm_options_get(get(), name.data(), name.size(), value, len, s);
        });
    }
    /* All of them, for set_text(). */
    std::string text(Outcome outcome = {}) const
    {
        return detail::text(outcome, [&](char **lines, std::size_t *len, dialsm_status_t *s) {
            dialsm_options_text(get(), lines, len, s);
        });
    }
    void validate(Outcome outcome = {}) const
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_options_validate(get(), s); });
    }
    Options &add_keyspace(std::string_view name, const Options &own, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) { dialsm_options_add_keyspace(get(), name.data(), name.size(), own.get(), s); },
            own);
        return *this;
    }
    Options &merge_operator(const MergeOperator &merge_operator, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_options_set_merge_operator(get(), merge_operator.get(), s); },
                    merge_operator);
        return *this;
    }
    Options &comparator(const Comparator &comparator, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_options_set_comparator(get(), comparator.get(), s); },
                    comparator);
        return *this;
    }
    Options &prefix_extractor(const PrefixExtractor &prefix_extractor, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) { dialsm_options_set_prefix_extractor(get(), prefix_extractor.get(), s); },
            prefix_extractor);
        return *this;
    }
    /* Who hears of flushes, compactions and so on, behind those that were added before: called on a thread of the
     * database. dialsm.h says what it may do. An exception ends the program. */
    Options &add_event_listener(std::function<void(const Event &)> function, Outcome outcome = {})
    {
        using Function = std::function<void(const Event &)>;
        auto state = std::make_unique<Function>(std::move(function));
        outcome.run([&](dialsm_status_t *s) {
            dialsm_event_listener_t *made = nullptr;
            dialsm_event_listener_create(state.release(), &hear, &forget, &made, s);
            detail::Handle<dialsm_event_listener_t, dialsm_event_listener_free> listener(made);
            if (made != nullptr)
                dialsm_options_add_event_listener(get(), made, s);
        });
        return *this;
    }
    bool is_usable() const noexcept { return get() != nullptr; }
    dialsm_options_t *get() noexcept { return handle_.get(); }
    const dialsm_options_t *get() const noexcept { return handle_.get(); }

private:
    static void hear(void *state, const dialsm_event_t *event) noexcept
    {
        (*static_cast<std::function<void(const Event &)> *>(state))(
            {{event->name, event->name_len},
             static_cast<dialsm_severity_t>(event->severity),
             event->wall_us,
             {event->fields, event->fields_len}});
    }
    static void forget(void *state) noexcept { delete static_cast<std::function<void(const Event &)> *>(state); }
    detail::Handle<dialsm_options_t, dialsm_options_free> handle_;
};

namespace detail {

/* Options of single calls: made when something is set; without, the defaults hold. `Self` is the class of them. */
template <typename Self, typename T, T *(*Create)(), void (*Free)(T *)>
class CallOptions {
public:
    bool is_usable() const noexcept { return !handle_.is_gone(); }
    const T *get() const noexcept { return handle_.get(); }

protected:
    template <typename Set, typename... Used>
    Self &set(Outcome outcome, Set set, const Used &...used)
    {
        if (is_usable() && handle_.get() == nullptr)
            handle_.reset(made(Create()));
        outcome.run([](dialsm_status_t *) {}, *this, used...);
        bool is_set = is_usable() && (used.is_usable() && ...);
        Code code = is_set ? set(handle_.get()) : DIALSM_OK;
        if (code != DIALSM_OK)
            fail(outcome, code);
        else if (is_set && outcome.status() != nullptr)
            outcome.status()->fail(DIALSM_OK, ""); /* What an earlier call left there is over. */
        return static_cast<Self &>(*this);
    }

private:
    static void fail(Outcome outcome, Code code)
    {
        Status own;
        Status &status = outcome.status() == nullptr ? own : *outcome.status();
        status.fail(code, "not a value of this option");
        if (outcome.status() == nullptr)
            throw Error(own);
    }
    Handle<T, Free> handle_;
};

} // namespace detail

class WriteOptions : public detail::CallOptions<WriteOptions, dialsm_write_options_t, dialsm_write_options_create,
                                                dialsm_write_options_free> {
public:
    WriteOptions &sync(bool on = true, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_write_options_set_sync(own, on); });
    }
    WriteOptions &disable_log(bool on = true, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_write_options_set_disable_log(own, on); });
    }
    WriteOptions &no_slowdown(bool on = true, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_write_options_set_no_slowdown(own, on); });
    }
    WriteOptions &timeout_ns(std::uint64_t ns, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_write_options_set_timeout_ns(own, ns); });
    }
};

class ReadOptions : public detail::CallOptions<ReadOptions, dialsm_read_options_t, dialsm_read_options_create,
                                               dialsm_read_options_free> {
public:
    ReadOptions &snapshot(const Snapshot &snapshot, Outcome outcome = {})
    {
        return set(
            outcome, [&](auto *own) { return dialsm_read_options_set_snapshot(own, snapshot.get()); }, snapshot);
    }
    /* The first key wanted. */
    ReadOptions &from(std::string_view key, Outcome outcome = {})
    {
        return set(outcome,
                   [&](auto *own) { return dialsm_read_options_set_lower_bound(own, key.data(), key.size()); });
    }
    /* The first key not wanted any more. */
    ReadOptions &to(std::string_view key, Outcome outcome = {})
    {
        return set(outcome,
                   [&](auto *own) { return dialsm_read_options_set_upper_bound(own, key.data(), key.size()); });
    }
    ReadOptions &prefix(std::string_view prefix, Outcome outcome = {})
    {
        return set(outcome,
                   [&](auto *own) { return dialsm_read_options_set_prefix(own, prefix.data(), prefix.size()); });
    }
    ReadOptions &prefix_same_as_start(bool on = true, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_read_options_set_prefix_same_as_start(own, on); });
    }
    ReadOptions &fill_cache(bool on, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_read_options_set_fill_cache(own, on); });
    }
    ReadOptions &verify_checksums(bool on, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_read_options_set_verify_checksums(own, on); });
    }
    ReadOptions &readahead_bytes(std::uint64_t bytes, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_read_options_set_readahead_bytes(own, bytes); });
    }
    ReadOptions &timeout_ns(std::uint64_t ns, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_read_options_set_timeout_ns(own, ns); });
    }
};

class FlushOptions : public detail::CallOptions<FlushOptions, dialsm_flush_options_t, dialsm_flush_options_create,
                                                dialsm_flush_options_free> {
public:
    FlushOptions &wait(bool on, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_flush_options_set_wait(own, on); });
    }
    FlushOptions &allow_stall(bool on, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_flush_options_set_allow_stall(own, on); });
    }
    FlushOptions &atomic(bool on = true, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_flush_options_set_atomic(own, on); });
    }
};

/* Lets another thread end a compaction. */
class Cancel {
public:
    Cancel() : handle_(detail::made(dialsm_cancel_create())) {}
    void cancel() noexcept { dialsm_cancel(handle_.get()); }
    bool is_usable() const noexcept { return get() != nullptr; }
    const dialsm_cancel_t *get() const noexcept { return handle_.get(); }

private:
    detail::Handle<dialsm_cancel_t, dialsm_cancel_free> handle_;
};

class CompactOptions : public detail::CallOptions<CompactOptions, dialsm_compact_options_t,
                                                  dialsm_compact_options_create, dialsm_compact_options_free> {
public:
    CompactOptions &target_level(std::int32_t level, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_compact_options_set_target_level(own, level); });
    }
    CompactOptions &rewrite_bottom(bool on = true, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_compact_options_set_rewrite_bottom(own, on); });
    }
    CompactOptions &cancel(const Cancel &cancel, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_compact_options_set_cancel(own, cancel.get()); }, cancel);
    }
};

class ScanOptions : public detail::CallOptions<ScanOptions, dialsm_scan_options_t, dialsm_scan_options_create,
                                               dialsm_scan_options_free> {
public:
    /* The first key wanted, and the first not wanted any more. */
    ScanOptions &range(std::optional<std::string_view> from, std::optional<std::string_view> to, Outcome outcome = {})
    {
        auto start = [](const auto &key) { return !key ? nullptr : key->data() == nullptr ? "" : key->data(); };
        auto len = [](const auto &key) { return key ? key->size() : 0; };
        return set(outcome, [&](auto *own) {
            return dialsm_scan_options_set_range(own, start(from), len(from), start(to), len(to));
        });
    }
    ScanOptions &entries_max(std::uint64_t entries, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_scan_options_set_entries_max(own, entries); });
    }
    ScanOptions &backward(bool on = true, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_scan_options_set_backward(own, on); });
    }
    ScanOptions &batch_bytes(std::size_t bytes, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_scan_options_set_batch_bytes(own, bytes); });
    }
    ScanOptions &batch_entries_max(std::size_t entries, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_scan_options_set_batch_entries_max(own, entries); });
    }
    ScanOptions &long_bytes(std::uint64_t bytes, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_scan_options_set_long_bytes(own, bytes); });
    }
    ScanOptions &ahead_bytes_max(std::size_t bytes, Outcome outcome = {})
    {
        return set(outcome, [&](auto *own) { return dialsm_scan_options_set_ahead_bytes_max(own, bytes); });
    }
};

/* Operations that are written together. */
class Batch {
public:
    using Raw = dialsm_batch_t;
    /* What each() shows: DIALSM_OP_*, the keyspace's id, the key, and the value or the end of the range. */
    using Show = std::function<void(std::uint32_t op, std::uint32_t keyspace_id, std::string_view key,
                                    std::string_view value)>;

    Batch() : handle_(detail::made(dialsm_batch_create())) {}
    explicit Batch(dialsm_batch_t *handle) noexcept : handle_(handle) {}
    /* From the data() of another. */
    static std::optional<Batch> from_data(std::string_view data, Status &status)
    {
        return detail::object<Batch>(status, [&](dialsm_batch_t **made, dialsm_status_t *s) {
            dialsm_batch_create_from_data(data.data(), data.size(), made, s);
        });
    }
    static Batch from_data(std::string_view data)
    {
        return detail::thrown([&](Status &s) { return from_data(data, s); });
    }

    Batch &put(std::string_view key, std::string_view value, const Keyspace &in = {}, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_batch_put(get(), in.get(), key.data(), key.size(), value.data(), value.size(), s);
            },
            in);
        return *this;
    }
    Batch &erase(std::string_view key, const Keyspace &in = {}, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_batch_delete(get(), in.get(), key.data(), key.size(), s); }, in);
        return *this;
    }
    Batch &single_delete(std::string_view key, const Keyspace &in = {}, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) { dialsm_batch_single_delete(get(), in.get(), key.data(), key.size(), s); }, in);
        return *this;
    }
    Batch &erase_range(std::string_view from, std::string_view to, const Keyspace &in = {}, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_batch_delete_range(get(), in.get(), from.data(), from.size(), to.data(), to.size(), s);
            },
            in);
        return *this;
    }
    Batch &merge(std::string_view key, std::string_view operand, const Keyspace &in = {}, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_batch_merge(get(), in.get(), key.data(), key.size(), operand.data(), operand.size(), s);
            },
            in);
        return *this;
    }
    /* Shows every operation, in order. An exception of `show` ends the program. */
    void each(const Show &show, Outcome outcome = {}) const
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_batch_each(get(), const_cast<Show *>(&show), &call, s); });
    }
    std::uint32_t size() const noexcept { return dialsm_batch_count(get()); }
    std::string_view data() const noexcept
    {
        std::size_t len = 0;
        const void *data = dialsm_batch_data(get(), &len);
        return detail::view(data, len);
    }
    void clear() noexcept { dialsm_batch_clear(get()); }
    dialsm_batch_t *get() noexcept { return handle_.get(); }
    const dialsm_batch_t *get() const noexcept { return handle_.get(); }

private:
    static void call(void *show, std::uint32_t op, std::uint32_t keyspace_id, const std::uint8_t *key,
                     std::size_t key_len, const std::uint8_t *value, std::size_t value_len) noexcept
    {
        (*static_cast<const Show *>(show))(op, keyspace_id, detail::view(key, key_len), detail::view(value, value_len));
    }
    detail::Handle<dialsm_batch_t, dialsm_batch_free> handle_;
};

/* A key and its value, valid as long as what they come from stays as it is. */
struct Entry {
    std::string_view key;
    std::string_view value;
};

/* Entries that an iterator or a scan gave, in their order. They need no database. */
class Entries {
public:
    Entries() : handle_(detail::made(dialsm_entries_create())) {}
    std::size_t size() const noexcept { return dialsm_entries_count(get()); }
    bool empty() const noexcept { return size() == 0; }
    Entry operator[](std::size_t index) const noexcept
    {
        std::size_t key_len = 0, value_len = 0;
        const void *key = dialsm_entries_key(get(), index, &key_len);
        const void *value = dialsm_entries_value(get(), index, &value_len);
        return {detail::view(key, key_len), detail::view(value, value_len)};
    }

    class Position {
    public:
        using value_type = Entry;
        using difference_type = std::ptrdiff_t;
        using reference = Entry;
        using pointer = void;
        using iterator_category = std::input_iterator_tag;

        Position(const Entries &entries, std::size_t index) noexcept : entries_(&entries), index_(index) {}
        Entry operator*() const noexcept { return (*entries_)[index_]; }
        Position &operator++() noexcept { return ++index_, *this; }
        Position operator++(int) noexcept { return Position(*entries_, index_++); }
        friend bool operator==(const Position &a, const Position &b) noexcept { return a.index_ == b.index_; }
        friend bool operator!=(const Position &a, const Position &b) noexcept { return a.index_ != b.index_; }

    private:
        const Entries *entries_;
        std::size_t index_;
    };
    Position begin() const noexcept { return Position(*this, 0); }
    Position end() const noexcept { return Position(*this, size()); }

    dialsm_entries_t *get() noexcept { return handle_.get(); }
    const dialsm_entries_t *get() const noexcept { return handle_.get(); }

private:
    detail::Handle<dialsm_entries_t, dialsm_entries_free> handle_;
};

/* A cursor. `for (auto [key, value] : iterator)` begins at the first key. */
class Iterator {
public:
    using Raw = dialsm_iter_t;
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

    void seek_to_first(Outcome outcome = {}) { go(outcome, dialsm_iter_seek_to_first); }
    void seek_to_last(Outcome outcome = {}) { go(outcome, dialsm_iter_seek_to_last); }
    void seek(std::string_view key, Outcome outcome = {})
    {
        go(outcome, [&](dialsm_iter_t *iter, dialsm_status_t *s) {
            return dialsm_iter_seek(iter, key.data(), key.size(), s);
        });
    }
    void seek_for_prev(std::string_view key, Outcome outcome = {})
    {
        go(outcome, [&](dialsm_iter_t *iter, dialsm_status_t *s) {
            return dialsm_iter_seek_for_prev(iter, key.data(), key.size(), s);
        });
    }
    void next(Outcome outcome = {}) { go(outcome, dialsm_iter_next); }
    void prev(Outcome outcome = {}) { go(outcome, dialsm_iter_prev); }

    /* How the last move ended. */
    void status(Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_iter_status(get(), s); });
    }
    /* Holds the value beyond the next move. */
    void pin_value(Pinned &into, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_iter_pin_value(get(), into.get(), s); });
    }
    /* Moves over entries and puts them into `into`: at most `entries_max`, or until there are `bytes_max` bytes (0: no
     * such bound; not both). Says whether that worked and there were any; where it fails, those before the failure are
     * in `into`. */
    bool next_batch(Entries &into, std::size_t entries_max, std::size_t bytes_max = 0, Outcome outcome = {})
    {
        bool is_done = false;
        outcome.run([&](dialsm_status_t *s) {
            is_done = dialsm_iter_next_batch(get(), into.get(), entries_max, bytes_max, s) == DIALSM_OK;
        });
        return is_done && !into.empty();
    }

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
    template <typename Move>
    void go(Outcome outcome, Move move)
    {
        if (outcome.status() != nullptr)
            move(get(), outcome.status()->get());
        else if (move(get(), nullptr) != DIALSM_OK)
            explain(move);
    }
    /* No Status is made where nothing fails. What was wrong with the call itself, the iterator does not keep; then
     * the same call fails in the same way. */
    template <typename Move>
    void explain(Move move)
    {
        Status status;
        if (dialsm_iter_status(get(), status.get()) == DIALSM_OK)
            move(get(), status.get());
        if (!status.ok())
            throw Error(status);
    }
    detail::Handle<dialsm_iter_t, dialsm_iter_free> handle_;
};

/* A bulk scan. */
class Scan {
public:
    using Raw = dialsm_scan_t;
    explicit Scan(dialsm_scan_t *handle) noexcept : handle_(handle) {}
    /* Puts the next entries into `into`, and says whether that worked and there were any. */
    bool next(Entries &into, Outcome outcome = {})
    {
        bool is_done = false;
        outcome.run([&](dialsm_status_t *s) { is_done = dialsm_scan_next(get(), into.get(), s) == DIALSM_OK; });
        return is_done && !into.empty();
    }
    dialsm_scan_t *get() noexcept { return handle_.get(); }

private:
    detail::Handle<dialsm_scan_t, dialsm_scan_free> handle_;
};

/* Formats before and after an upgrade. */
struct Upgrade {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
};

/* An open database. It closes with the last object that hangs on it, without a word; close() says how. */
class Db {
public:
    using Raw = dialsm_db_t;
    using Progress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;
    explicit Db(dialsm_db_t *handle) noexcept : handle_(handle) {}

    static std::optional<Db> open(std::string_view path, const Options &options, Status &status)
    {
        return detail::object<Db>(
            status,
            [&](dialsm_db_t **db, dialsm_status_t *s) { dialsm_open(path.data(), path.size(), options.get(), db, s); },
            options);
    }
    static Db open(std::string_view path, const Options &options = {})
    {
        return detail::thrown([&](Status &s) { return open(path, options, s); });
    }
    static std::optional<Db> open_read_only(std::string_view path, const Options &options, Status &status)
    {
        return detail::object<Db>(
            status,
            [&](dialsm_db_t **db, dialsm_status_t *s) {
                dialsm_open_read_only(path.data(), path.size(), options.get(), db, s);
            },
            options);
    }
    static Db open_read_only(std::string_view path, const Options &options = {})
    {
        return detail::thrown([&](Status &s) { return open_read_only(path, options, s); });
    }
    static void destroy(std::string_view path, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_destroy(path.data(), path.size(), s); });
    }
    static Upgrade upgrade(std::string_view path, Outcome outcome = {})
    {
        Upgrade formats;
        outcome.run(
            [&](dialsm_status_t *s) { dialsm_upgrade(path.data(), path.size(), &formats.from, &formats.to, s); });
        return formats;
    }
    static std::vector<std::string> list_keyspaces(std::string_view path, Outcome outcome = {})
    {
        return detail::names(outcome, [&](dialsm_names_t **names, dialsm_status_t *s) {
            dialsm_list_keyspaces(path.data(), path.size(), names, s);
        });
    }

    void close(Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_close(get(), s); });
    }

    std::optional<Keyspace> create_keyspace(std::string_view name, const Options &options, Status &status)
    {
        return detail::object<Keyspace>(
            status,
            [&](dialsm_keyspace_t **keyspace, dialsm_status_t *s) {
                dialsm_keyspace_create(get(), name.data(), name.size(), options.get(), keyspace, s);
            },
            options);
    }
    Keyspace create_keyspace(std::string_view name, const Options &options = Options::for_keyspace())
    {
        return detail::thrown([&](Status &s) { return create_keyspace(name, options, s); });
    }
    std::optional<Keyspace> keyspace(std::string_view name, Status &status)
    {
        return detail::object<Keyspace>(status, [&](dialsm_keyspace_t **keyspace, dialsm_status_t *s) {
            dialsm_keyspace_find(get(), name.data(), name.size(), keyspace, s);
        });
    }
    Keyspace keyspace(std::string_view name)
    {
        return detail::thrown([&](Status &s) { return keyspace(name, s); });
    }
    void drop_keyspace(const Keyspace &keyspace, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_keyspace_drop(get(), keyspace.get(), s); }, keyspace);
    }
    std::vector<std::string> keyspaces(Outcome outcome = {})
    {
        return detail::names(
            outcome, [&](dialsm_names_t **names, dialsm_status_t *s) { dialsm_keyspaces(get(), names, s); });
    }

    void put(std::string_view key, std::string_view value, const Keyspace &in = {}, const WriteOptions &options = {},
             Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_put(get(), in.get(), options.get(), key.data(), key.size(), value.data(), value.size(), s);
            },
            in, options);
    }
    void erase(std::string_view key, const Keyspace &in = {}, const WriteOptions &options = {}, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) { dialsm_delete(get(), in.get(), options.get(), key.data(), key.size(), s); }, in,
            options);
    }
    /* Of a key that was put only while it was absent. */
    void single_delete(std::string_view key, const Keyspace &in = {}, const WriteOptions &options = {},
                       Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_single_delete(get(), in.get(), options.get(), key.data(), key.size(), s);
            },
            in, options);
    }
    void erase_range(std::string_view from, std::string_view to, const Keyspace &in = {},
                     const WriteOptions &options = {}, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_delete_range(get(), in.get(), options.get(), from.data(), from.size(), to.data(), to.size(), s);
            },
            in, options);
    }
    void merge(std::string_view key, std::string_view operand, const Keyspace &in = {},
               const WriteOptions &options = {}, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_merge(get(), in.get(), options.get(), key.data(), key.size(), operand.data(), operand.size(), s);
            },
            in, options);
    }
    void write(const Batch &batch, const WriteOptions &options = {}, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_write(get(), options.get(), batch.get(), s); }, options);
    }

    /* A copy of the value, or nothing. */
    std::optional<std::string> get(std::string_view key, const Keyspace &in = {}, const ReadOptions &options = {},
                                   Outcome outcome = {})
    {
        Pinned pinned;
        get(key, pinned, in, options, outcome);
        return pinned ? std::optional<std::string>(pinned.value()) : std::nullopt;
    }
    /* Without a copy. */
    void get(std::string_view key, Pinned &into, const Keyspace &in = {}, const ReadOptions &options = {},
             Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_get_pinned(get(), in.get(), options.get(), key.data(), key.size(), into.get(), s);
            },
            in, options);
    }
    std::vector<std::optional<std::string>> multi_get(const std::vector<std::string_view> &keys,
                                                      const Keyspace &in = {}, const ReadOptions &options = {},
                                                      Outcome outcome = {})
    {
        detail::Parts parts(keys.size());
        std::vector<const void *> starts;
        for (std::string_view key : keys) {
            parts.add(key);
            starts.push_back(key.data());
        }
        detail::Handle<dialsm_values_t, dialsm_values_free> values(detail::made(dialsm_values_create()));
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_multi_get(get(), in.get(), options.get(), keys.size(), starts.data(), parts.lens.data(),
                                 values.get(), s);
            },
            in, options);
        std::vector<std::optional<std::string>> found(dialsm_values_count(values.get()));
        for (std::size_t i = 0; i < found.size(); i++) {
            std::size_t len = 0;
            if (const void *data = dialsm_values_get(values.get(), i, &len))
                found[i] = std::string(detail::view(data, len));
        }
        return found;
    }

    std::optional<Snapshot> snapshot(Status &status)
    {
        return detail::object<Snapshot>(status, [&](dialsm_snapshot_t **snapshot, dialsm_status_t *s) {
            dialsm_snapshot_create(get(), snapshot, s);
        });
    }
    Snapshot snapshot()
    {
        return detail::thrown([&](Status &s) { return snapshot(s); });
    }
    std::optional<Iterator> iterate(const ReadOptions &options, const Keyspace &in, Status &status)
    {
        return detail::object<Iterator>(
            status,
            [&](dialsm_iter_t **iter, dialsm_status_t *s) {
                dialsm_iter_create(get(), in.get(), options.get(), iter, s);
            },
            options, in);
    }
    Iterator iterate(const ReadOptions &options = {}, const Keyspace &in = {})
    {
        return detail::thrown([&](Status &s) { return iterate(options, in, s); });
    }
    /* Iterators of one moment, one over each keyspace (NULL: the default one); none where one fails. */
    std::vector<Iterator> iterate_all(const std::vector<const Keyspace *> &keyspaces, const ReadOptions &options = {},
                                      Outcome outcome = {})
    {
        std::vector<const dialsm_keyspace_t *> handles;
        bool are_usable = true;
        for (const Keyspace *keyspace : keyspaces) {
            handles.push_back(keyspace == nullptr ? nullptr : keyspace->get());
            are_usable = are_usable && (keyspace == nullptr || keyspace->is_usable());
        }
        std::vector<dialsm_iter_t *> made(handles.size());
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_iters_create(get(), options.get(), handles.size(), handles.data(), made.data(), s);
            },
            options, detail::Usable{are_usable});
        std::vector<Iterator> iterators;
        iterators.reserve(made.size());
        for (dialsm_iter_t *iter : made)
            if (iter != nullptr)
                iterators.emplace_back(iter);
        return iterators;
    }
    std::optional<Scan> scan(const ScanOptions &options, const ReadOptions &read_options, const Keyspace &in,
                             Status &status)
    {
        return detail::object<Scan>(
            status,
            [&](dialsm_scan_t **scan, dialsm_status_t *s) {
                dialsm_scan_create(get(), in.get(), read_options.get(), options.get(), scan, s);
            },
            options, read_options, in);
    }
    Scan scan(const ScanOptions &options = {}, const ReadOptions &read_options = {}, const Keyspace &in = {})
    {
        return detail::thrown([&](Status &s) { return scan(options, read_options, in, s); });
    }

    void flush(const Keyspace &in = {}, const FlushOptions &options = {}, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_flush(get(), in.get(), options.get(), s); }, in, options);
    }
    void flush_all(const FlushOptions &options = {}, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_flush_all(get(), options.get(), s); }, options);
    }
    void sync(Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_sync(get(), s); });
    }
    void compact(const Keyspace &in = {}, const CompactOptions &options = {}, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_compact_range(get(), in.get(), options.get(), nullptr, 0, nullptr, 0, s);
            },
            in, options);
    }
    void compact(std::string_view from, std::string_view to, const Keyspace &in = {},
                 const CompactOptions &options = {}, Outcome outcome = {})
    {
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_compact_range(get(), in.get(), options.get(), from.data(), from.size(), to.data(), to.size(), s);
            },
            in, options);
    }
    void rollback(Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_rollback(get(), s); });
    }
    bool is_idle(Outcome outcome = {})
    {
        bool is_idle = false;
        outcome.run([&](dialsm_status_t *s) { dialsm_is_idle(get(), &is_idle, s); });
        return is_idle;
    }
    void wait_until_idle(Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_wait_until_idle(get(), s); });
    }
    void checkpoint(std::string_view target_dir, Outcome outcome = {})
    {
        outcome.run([&](dialsm_status_t *s) { dialsm_checkpoint(get(), target_dir.data(), target_dir.size(), s); });
    }
    /* Reads every table whole and checks it. An exception of `progress` ends the program. */
    dialsm_verified_t verify(const Progress &progress = {}, Outcome outcome = {})
    {
        dialsm_verified_t verified{};
        verified.size = sizeof verified;
        outcome.run([&](dialsm_status_t *s) {
            dialsm_verify(get(), const_cast<Progress *>(&progress), progress ? &tell : nullptr, &verified, s);
        });
        return verified;
    }
    /* Names and values, as text; of the database, or of one keyspace. All or none. */
    void set_options(const std::vector<std::pair<std::string_view, std::string_view>> &changes,
                     const Keyspace &in = {}, Outcome outcome = {})
    {
        detail::Parts names(changes.size()), values(changes.size());
        for (const auto &[name, value] : changes) {
            names.add(name);
            values.add(value);
        }
        outcome.run(
            [&](dialsm_status_t *s) {
                dialsm_set_options(get(), in.get(), changes.size(), names.starts.data(), names.lens.data(),
                                   values.starts.data(), values.lens.data(), s);
            },
            in);
    }

    dialsm_stalls_t stalls(const Keyspace &in = {}, Outcome outcome = {})
    {
        dialsm_stalls_t stalls{};
        stalls.size = sizeof stalls;
        outcome.run([&](dialsm_status_t *s) { dialsm_stalls(get(), in.get(), &stalls, s); }, in);
        return stalls;
    }
    dialsm_clues_t clues(Outcome outcome = {})
    {
        dialsm_clues_t clues{};
        clues.size = sizeof clues;
        outcome.run([&](dialsm_status_t *s) { dialsm_clues(get(), &clues, s); });
        return clues;
    }
    std::uint64_t counter(std::string_view name, Outcome outcome = {})
    {
        std::uint64_t value = 0;
        outcome.run([&](dialsm_status_t *s) { dialsm_counter(get(), name.data(), name.size(), &value, s); });
        return value;
    }
    std::string statistics(Outcome outcome = {})
    {
        return detail::text(outcome, [&](char **text, std::size_t *len, dialsm_status_t *s) {
            dialsm_statistics(get(), text, len, s);
        });
    }
    std::string statistics_json(Outcome outcome = {})
    {
        return detail::text(outcome, [&](char **json, std::size_t *len, dialsm_status_t *s) {
            dialsm_statistics_json(get(), json, len, s);
        });
    }
    std::string property(std::string_view name, const Keyspace &in = {}, Outcome outcome = {})
    {
        return detail::text(
            outcome,
            [&](char **value, std::size_t *len, dialsm_status_t *s) {
                dialsm_property(get(), in.get(), name.data(), name.size(), value, len, s);
            },
            in);
    }
    /* Names of all properties. */
    static std::vector<std::string> properties()
    {
        std::vector<std::string> names;
        while (const char *name = dialsm_property_name(names.size()))
            names.emplace_back(name);
        return names;
    }

    dialsm_db_t *get() noexcept { return handle_.get(); }

private:
    static void tell(void *progress, std::uint64_t done_bytes, std::uint64_t total_bytes) noexcept
    {
        (*static_cast<const Progress *>(progress))(done_bytes, total_bytes);
    }
    detail::Handle<dialsm_db_t, dialsm_db_free> handle_;
};

} // namespace dialsm

#endif
