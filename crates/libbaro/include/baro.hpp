// baro.hpp - barograph for C++17: the functions of baro.h as owning, typed classes. Header only;
// link with -lbaro.
//
//   baro::publisher app{"lulesh"};
//   auto step = app.publication("lulesh");
//   auto residual =
//       step.value<double>("residual", {"1", baro::kind::gauge, "distance from the solution"});
//   for (std::uint64_t n = 0; n < 1000; ++n) {
//       residual.put(1.0 / double(n + 1));
//       step.frame(n);
//   }
//
// Publishing throws nothing: a refused declaration does nothing, and baro::last_error() gives the
// reason. Reading throws baro::error. Apache-2.0.
#ifndef BARO_HPP
#define BARO_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "baro.h"

namespace baro {

/// Returns the reason for the last refused call of this thread, and its remedy.
inline std::string last_error() { return baro_error(); }

/// An error of reading or calling.
class error : public std::runtime_error {
public:
    explicit error(int code) : std::runtime_error(last_error()), code_(code) {}
    /// The error's code, one of BARO_E_...
    int code() const noexcept { return code_; }

private:
    int code_;
};

enum class readers { owner = BARO_READERS_OWNER, group = BARO_READERS_GROUP, all = BARO_READERS_ALL };
enum class kind { gauge = BARO_GAUGE, counter = BARO_COUNTER, state = BARO_STATE };

/// The unit, kind, help and size of a declared value.
struct about {
    const char *unit = "";
    baro::kind kind = baro::kind::gauge;
    const char *help = "";
    /// The longest text, bytes, JSON or array, in bytes: 0 means 4,096; at most 65,536.
    std::uint32_t bytes_max = 0;
};

/// Types of values that are put by put_bytes, put_json and put_floats, as in
/// publication.value<baro::floats>("mesh").
struct bytes {};
struct json {};
struct floats {};

namespace detail {
template <class T> constexpr int type_of()
{
    constexpr bool is_long =
        std::is_same_v<T, bytes> || std::is_same_v<T, json> || std::is_same_v<T, floats>;
    static_assert(is_long || std::is_arithmetic_v<T> || std::is_convertible_v<T, std::string_view>,
                  "a value is a number, a bool, a text, or baro::bytes, baro::json or baro::floats");
    if constexpr (std::is_same_v<T, bytes>)
        return BARO_BYTES;
    else if constexpr (std::is_same_v<T, json>)
        return BARO_JSON;
    else if constexpr (std::is_same_v<T, floats>)
        return BARO_FLOATS;
    else if constexpr (std::is_same_v<T, bool>)
        return BARO_BOOL;
    else if constexpr (std::is_integral_v<T>)
        return BARO_INT;
    else if constexpr (std::is_floating_point_v<T>)
        return BARO_FLOAT;
    else
        return BARO_TEXT;
}
} // namespace detail

/// A value that can be put, from any thread; free to copy. The default one does nothing.
template <class T> class value {
public:
    value() = default;
    explicit value(baro_value_t handle) noexcept : handle_(handle) {}

    /// Puts a value with the time of the call.
    void put(const T &x) const noexcept
    {
        constexpr int type = detail::type_of<T>();
        if constexpr (type == BARO_BOOL)
            baro_put_bool(handle_, x);
        else if constexpr (type == BARO_INT)
            baro_put_i64(handle_, static_cast<std::int64_t>(x));
        else if constexpr (type == BARO_FLOAT)
            baro_put_f64(handle_, static_cast<double>(x));
        else
            baro_put_text(handle_, c_str(x));
    }
    const value &operator=(const T &x) const noexcept
    {
        put(x);
        return *this;
    }

    /// Puts bytes, JSON or an array: for values of baro::bytes, baro::json (or a text) or
    /// baro::floats.
    void put_bytes(const void *bytes, std::size_t count) const noexcept
    {
        baro_put_bytes(handle_, static_cast<const std::uint8_t *>(bytes), count);
    }
    void put_json(const std::string &json) const noexcept { baro_put_json(handle_, json.c_str()); }
    void put_floats(const double *values, std::size_t count) const noexcept
    {
        baro_put_floats(handle_, values, count);
    }

    explicit operator bool() const noexcept { return handle_ != 0; }
    baro_value_t handle() const noexcept { return handle_; }

private:
    static const char *c_str(const std::string &text) noexcept { return text.c_str(); }
    static const char *c_str(const char *text) noexcept { return text; }
    baro_value_t handle_ = 0;
};

/// A value that others may set; free to copy. The default one is 0.
template <class T> class knob {
public:
    knob() = default;
    /// Wraps a declared knob; without one (null), the knob keeps its initial value.
    knob(const baro_knob_t *declared, T initial) noexcept : knob_(declared), initial_(initial) {}

    /// Returns the last setting that a poll or frame has applied.
    T get() const noexcept
    {
        if (!knob_)
            return initial_;
        if constexpr (detail::type_of<T>() == BARO_FLOAT)
            return static_cast<T>(baro_knob_get_f64(knob_));
        else if constexpr (detail::type_of<T>() == BARO_BOOL)
            return baro_knob_get_bool(knob_) != 0;
        else
            return static_cast<T>(baro_knob_get_i64(knob_));
    }
    operator T() const noexcept { return get(); }

    bool is_declared() const noexcept { return knob_ != nullptr; }

private:
    const baro_knob_t *knob_ = nullptr;
    T initial_ = T();
};

/// A call: one firing of a trigger; valid while its handler runs.
class call {
public:
    explicit call(const baro_call_t *given) noexcept : call_(given) {}

    const char *name() const noexcept { return call_->name; }
    std::uint64_t id() const noexcept { return call_->id; }
    /// When the trigger was fired, ns since the epoch.
    std::int64_t issued_ns() const noexcept { return call_->issued_ns; }
    /// Type of the payload; BARO_NULL if there is none.
    int type() const noexcept { return call_->type; }
    /// The payload, if it is a number.
    std::optional<double> number() const noexcept
    {
        if (call_->type == BARO_FLOAT)
            return call_->as.f;
        if (call_->type == BARO_INT || call_->type == BARO_BOOL)
            return static_cast<double>(call_->as.i);
        return std::nullopt;
    }
    /// The payload, if it is text, JSON or bytes; else empty.
    std::string_view text() const noexcept
    {
        const bool is_text = call_->type == BARO_TEXT || call_->type == BARO_JSON || call_->type == BARO_BYTES;
        return is_text ? std::string_view(call_->as.text, call_->bytes) : std::string_view();
    }
    /// The call as baro.h has it.
    const baro_call_t &raw() const noexcept { return *call_; }

private:
    const baro_call_t *call_;
};

/// A publication: a named set of values; free to copy. The default one does nothing.
class publication {
public:
    publication() = default;
    explicit publication(baro_publication_t handle) noexcept : handle_(handle) {}

    /// Declares a value, or finds it again; a refused one does nothing.
    template <class T> baro::value<T> value(const char *name, const about &what = {}) const noexcept
    {
        return baro::value<T>(baro_value_sized(handle_, name, detail::type_of<T>(), what.unit,
                                               static_cast<int>(what.kind), what.help,
                                               what.bytes_max));
    }
    /// Declares a knob with bounds, or finds it again.
    template <class T>
    baro::knob<T> knob(const char *name, T initial, T min, T max, const about &what = {}) const noexcept
    {
        static_assert(detail::type_of<T>() == BARO_FLOAT || detail::type_of<T>() == BARO_INT,
                      "a knob with bounds is a number");
        if constexpr (detail::type_of<T>() == BARO_FLOAT)
            return {baro_knob_f64(handle_, name, initial, min, max, what.unit, what.help), initial};
        else
            return {baro_knob_i64(handle_, name, initial, min, max, what.unit, what.help), initial};
    }
    /// Declares a knob that is true or false, or finds it again.
    baro::knob<bool> knob(const char *name, bool initial, const char *help = "") const noexcept
    {
        return {baro_knob_bool(handle_, name, initial, help), initial};
    }
    /// Ends a frame: its number and all puts of this thread since its last frame appear at once.
    void frame(std::uint64_t number) const noexcept { baro_frame(handle_, number); }

    explicit operator bool() const noexcept { return handle_ != 0; }
    baro_publication_t handle() const noexcept { return handle_; }

private:
    baro_publication_t handle_ = 0;
};

/// Why a phase of I/O may go on.
enum class io_grant {
    off = BARO_IO_OFF,
    granted = BARO_IO_GRANTED,
    late = BARO_IO_LATE,
    no_agent = BARO_IO_NO_AGENT,
};

/// A phase of I/O that has begun. It ends when it is destroyed.
class io_phase {
public:
    io_phase(baro_io_volume_t *volume, std::uint64_t number, int grant, std::chrono::milliseconds wait) noexcept
        : volume_(volume), number_(number), grant_(static_cast<io_grant>(grant)), wait_(wait)
    {
    }
    io_phase(io_phase &&other) noexcept
        : volume_(other.volume_), number_(std::exchange(other.number_, 0)), grant_(other.grant_), wait_(other.wait_),
          done_(other.done_)
    {
    }
    io_phase &operator=(io_phase &&) = delete;
    ~io_phase() { end(done_); }

    /// Why it may go on.
    io_grant grant() const noexcept { return grant_; }
    /// Says how much it has done, and waits if its grant was taken away for others.
    io_grant step(std::uint64_t bytes_done) noexcept
    {
        done_ = bytes_done;
        const int grant = baro_io_step(volume_, number_, bytes_done, static_cast<std::uint64_t>(wait_.count()));
        if (grant >= 0)
            grant_ = static_cast<io_grant>(grant);
        return grant_;
    }
    /// Ends it before it is destroyed.
    void end(std::uint64_t bytes_done) noexcept
    {
        if (number_ != 0)
            baro_io_end(volume_, std::exchange(number_, 0), bytes_done);
    }

private:
    baro_io_volume_t *volume_;
    std::uint64_t number_;
    io_grant grant_;
    std::chrono::milliseconds wait_;
    std::uint64_t done_ = 0;
};

/// A volume on which the program does I/O; must live as long as its phases.
class io_volume {
public:
    explicit io_volume(baro_io_volume_t *volume) noexcept : volume_(volume) {}
    explicit operator bool() const noexcept { return volume_ != nullptr; }

    /// Begins a phase, and returns when it may do I/O. `bytes` is what it will read and write, -1
    /// if it does not know; a wait of 0 is 60 seconds.
    io_phase begin(std::int64_t bytes = -1, int priority = 0, std::chrono::milliseconds wait = {}) noexcept
    {
        int grant = BARO_IO_OFF;
        const auto number =
            baro_io_begin(volume_.get(), bytes, priority, static_cast<std::uint64_t>(wait.count()), &grant);
        return io_phase{volume_.get(), number, grant, wait};
    }

private:
    struct closer {
        void operator()(baro_io_volume_t *volume) const noexcept { baro_io_volume_close(volume); }
    };
    std::unique_ptr<baro_io_volume_t, closer> volume_;
};

/// Why an operation at the servers of a map has begun.
enum class map_start {
    off = BARO_MAP_OFF,
    current = BARO_MAP_CURRENT,
    late = BARO_MAP_LATE,
};

/// An operation at the servers of a map. It ends when it is destroyed.
class map_operation {
public:
    map_operation(baro_server_map_t *map, std::chrono::milliseconds wait) noexcept : map_(map)
    {
        operation_.number = operation_.epoch = 0;
        operation_.start = BARO_MAP_OFF;
        operation_.servers_count = 0;
        baro_map_begin(map_, static_cast<std::uint64_t>(wait.count()), &operation_);
    }
    map_operation(const map_operation &) = delete;
    map_operation &operator=(const map_operation &) = delete;
    ~map_operation() { end(); }

    /// The epoch, which goes to the servers with each request.
    std::uint64_t epoch() const noexcept { return operation_.epoch; }
    map_start start() const noexcept { return static_cast<map_start>(operation_.start); }
    /// The numbers of its servers, in order.
    std::size_t size() const noexcept { return operation_.servers_count; }
    std::uint16_t operator[](std::size_t at) const noexcept { return operation_.servers[at]; }
    std::vector<std::uint16_t> servers() const
    {
        return {operation_.servers, operation_.servers + operation_.servers_count};
    }
    /// Ends it before it is destroyed.
    void end() noexcept { baro_map_end(map_, &operation_); }
    /// Ends it, since a server has refused it with a fence: begin another one.
    void refused(std::uint64_t fence) noexcept { baro_map_refused(map_, &operation_, fence); }

private:
    baro_server_map_t *map_;
    baro_map_operation_t operation_;
};

/// A map of servers at which the program does operations; must live as long as these.
class server_map {
public:
    explicit server_map(baro_server_map_t *map) noexcept : map_(map) {}
    explicit operator bool() const noexcept { return map_ != nullptr; }

    /// Begins an operation, and returns when it may be done. A wait of 0 is 60 seconds.
    map_operation operation(std::chrono::milliseconds wait = {}) noexcept { return {map_.get(), wait}; }

private:
    struct closer {
        void operator()(baro_server_map_t *map) const noexcept { baro_server_map_close(map); }
    };
    std::unique_ptr<baro_server_map_t, closer> map_;
};

/// A request that a server serves, or has refused. It ends when it is destroyed.
class map_request {
public:
    map_request(baro_map_server_t *server, std::uint64_t epoch) noexcept
        : server_(server), is_served_(baro_map_serve_begin(server, epoch, &request_) == BARO_MAP_SERVED)
    {
    }
    map_request(const map_request &) = delete;
    map_request &operator=(const map_request &) = delete;
    ~map_request() { end(0); }

    /// Whether it is served; otherwise answer with the fence.
    explicit operator bool() const noexcept { return is_served_; }
    std::uint64_t fence() const noexcept { return request_.fence; }
    /// Ends it, which has read or written so many bytes.
    void end(std::uint64_t bytes) noexcept { baro_map_serve_end(server_, &request_, bytes); }

private:
    baro_map_server_t *server_;
    baro_map_request_t request_ = {};
    bool is_served_;
};

/// A server of a map; must live as long as its requests.
class map_server {
public:
    explicit map_server(baro_map_server_t *server) noexcept : server_(server) {}
    explicit operator bool() const noexcept { return server_ != nullptr; }

    /// Begins to serve a request of an epoch.
    map_request serve(std::uint64_t epoch) noexcept { return {server_.get(), epoch}; }

private:
    struct closer {
        void operator()(baro_map_server_t *server) const noexcept { baro_map_server_close(server); }
    };
    std::unique_ptr<baro_map_server_t, closer> server_;
};

/// The publisher of this process; closed when the last object of this class ends.
class publisher {
public:
    explicit publisher(const char *application = nullptr, const baro_config_t *config = nullptr) noexcept
        : baro_(baro_open(application, config))
    {
    }

    bool is_enabled() const noexcept { return baro_is_enabled(baro_.get()) != 0; }
    std::uint64_t lost() const noexcept { return baro_lost(baro_.get()); }
    /// Number of declarations that the agent refuses at present: none of their puts is kept.
    std::uint64_t refused() const noexcept { return baro_refused_count(baro_.get()); }
    bool label(const char *name, const char *value) noexcept
    {
        return baro_label(baro_.get(), name, value) == BARO_OK;
    }
    baro::publication publication(const char *name, readers who = readers::owner) noexcept
    {
        return baro::publication(baro_publication(baro_.get(), name, static_cast<int>(who)));
    }

    /// Declares a volume on which the program does I/O: the path of a file or directory on it, or
    /// its name in the agent's configuration.
    baro::io_volume io_volume(const char *volume) noexcept
    {
        return baro::io_volume(baro_io_volume(baro_.get(), volume));
    }

    /// Declares that this process does operations at the servers of a map, with the numbers of those
    /// that it begins with.
    baro::server_map server_map(const char *name, const std::vector<std::uint32_t> &servers) noexcept
    {
        return baro::server_map(baro_server_map(baro_.get(), name, servers.data(), servers.size()));
    }
    /// Declares that this process is a server of a map.
    baro::map_server map_server(const char *name, std::uint32_t number) noexcept
    {
        return baro::map_server(baro_map_server(baro_.get(), name, number));
    }

    /// Says who may read the control events of this program, before the first one; otherwise it is
    /// their owner.
    bool control_readers(readers who) noexcept
    {
        return baro_control_readers(baro_.get(), static_cast<int>(who)) == BARO_OK;
    }
    /// Publishes a control event, with the puts of this thread since its last frame. Returns false
    /// if there can be no such event, or no room for it.
    bool control_event(const char *kind, const char *subject = "",
                       double value = std::numeric_limits<double>::quiet_NaN(), double confidence = 1,
                       std::initializer_list<baro_property_t> properties = {}) noexcept
    {
        return baro_control_event(baro_.get(), kind, subject, value, confidence, properties.begin(),
                                  properties.size()) == BARO_OK;
    }

    /// Sets the handler `handler(const baro::call &)` of a trigger, which runs on the thread of
    /// poll or listen. If it returns false or throws, the caller learns that it failed.
    template <class F> bool on(const char *name, F &&handler, const char *help = "")
    {
        using Handler = std::decay_t<F>;
        auto *held = new Handler(std::forward<F>(handler));
        return baro_on_owned(baro_.get(), name, help, &run<Handler>, held, &release<Handler>) == BARO_OK;
    }
    /// Sets the handler of a trigger of a publication of this publisher: calls match it by the
    /// labels of both, and readers of the publication may read about the calls.
    template <class F>
    bool on(const baro::publication &of, const char *name, F &&handler, const char *help = "")
    {
        using Handler = std::decay_t<F>;
        auto *held = new Handler(std::forward<F>(handler));
        return baro_publication_on(baro_.get(), of.handle(), name, help, &run<Handler>, held, &release<Handler>) ==
               BARO_OK;
    }
    /// Runs the handlers of new calls and applies new settings of knobs. Returns the number of
    /// both.
    int poll() const noexcept { return baro_poll(baro_.get()); }
    /// Starts a thread that sleeps until a trigger is fired and runs its handler.
    bool listen() noexcept { return baro_listen(baro_.get()) == BARO_OK; }

private:
    template <class Handler> static int run(const baro_call_t *given, void *held) noexcept
    {
        try {
            const baro::call call{given};
            auto &handler = *static_cast<Handler *>(held);
            if constexpr (std::is_same_v<decltype(handler(call)), bool>)
                return handler(call) ? 0 : 1;
            else
                handler(call);
            return 0;
        } catch (...) {
            return 1;
        }
    }
    template <class Handler> static void release(void *held) noexcept { delete static_cast<Handler *>(held); }

    struct closer {
        void operator()(baro_t *baro) const noexcept { baro_close(baro); }
    };
    std::unique_ptr<baro_t, closer> baro_;
};

/// Fires a trigger, with or without a text, in all processes with the given labels
/// ("label=value,label=value"), and waits up to `wait` for their answers. Throws baro::error if no
/// process was called.
inline baro_fired_t fire(const char *name, const char *target = "", std::string_view text = {},
                         std::chrono::milliseconds wait = {}, const char *run_dir = nullptr)
{
    baro_fired_t fired{};
    const int type = text.data() ? BARO_TEXT : BARO_NULL;
    const char *place = text.empty() && text.data() ? "" : text.data();
    const int code = baro_fire(run_dir, name, target, type, place, text.size(), 0,
                               static_cast<std::uint64_t>(wait.count()), &fired);
    if (code < 0)
        throw error(code);
    return fired;
}

/// Sets a knob, named "publication.knob"; otherwise like fire.
template <class T>
baro_fired_t set_knob(const char *knob, T value, const char *target = "", std::chrono::milliseconds wait = {},
                      const char *run_dir = nullptr)
{
    baro_fired_t fired{};
    const auto wait_ms = static_cast<std::uint64_t>(wait.count());
    int code;
    if constexpr (detail::type_of<T>() == BARO_BOOL)
        code = baro_knob_set_bool(run_dir, knob, target, value, wait_ms, &fired);
    else if constexpr (detail::type_of<T>() == BARO_INT)
        code = baro_knob_set_i64(run_dir, knob, target, static_cast<std::int64_t>(value), wait_ms, &fired);
    else
        code = baro_knob_set_f64(run_dir, knob, target, static_cast<double>(value), wait_ms, &fired);
    if (code < 0)
        throw error(code);
    return fired;
}

/// A guard that ends a frame when its block ends, also by an exception.
class frame {
public:
    frame(const publication &of, std::uint64_t number) noexcept : of_(of), number_(number) {}
    ~frame() { of_.frame(number_); }
    frame(const frame &) = delete;
    frame &operator=(const frame &) = delete;

private:
    publication of_;
    std::uint64_t number_;
};

/// The newest sample of a stream: its time (ns since the epoch) and its value.
struct sample {
    std::int64_t ts = 0;
    double value = 0;
};

/// The present value of a stream, measured or predicted.
struct estimate {
    /// Time of the look, or now if the value is predicted; ns since the epoch.
    std::int64_t ts = 0;
    double value = 0;
    /// The true value is within this distance of `value` with the agent's confidence; infinite
    /// while that is not known.
    double error = 0;
    bool is_predicted = false;
};

/// A stream that was found once and is read many times; for one thread at a time.
class stream {
public:
    /// Returns the newest sample; nothing before the first one.
    std::optional<sample> latest()
    {
        sample newest;
        const int code = baro_stream_latest_f64(stream_.get(), &newest.ts, &newest.value);
        if (code < 0)
            throw error(code);
        return code == BARO_OK ? std::optional<sample>(newest) : std::nullopt;
    }
    /// Returns the value predicted for now if the stream has a forecast, else the newest sample;
    /// nothing before the first one.
    std::optional<estimate> latest_expected()
    {
        estimate now;
        int quality = 0;
        const int code =
            baro_stream_latest_expected(stream_.get(), &now.ts, &now.value, &now.error, &quality, nullptr);
        if (code < 0)
            throw error(code);
        now.is_predicted = quality == BARO_PREDICTED;
        return code == BARO_OK ? std::optional<estimate>(now) : std::nullopt;
    }
    /// Sleeps until there is a new sample (true) or the timeout has passed (false).
    bool wait(std::chrono::nanoseconds timeout)
    {
        const int code = baro_wait(stream_.get(), timeout.count());
        if (code < 0)
            throw error(code);
        return code == BARO_OK;
    }

private:
    friend class node;
    explicit stream(baro_stream_t *given) : stream_(given) {}
    struct closer {
        void operator()(baro_stream_t *given) const noexcept { baro_stream_close(given); }
    };
    std::unique_ptr<baro_stream_t, closer> stream_;
};

/// A new sample of a subscription; valid until the subscription is asked for the next one or ends.
class update {
public:
    explicit update(const baro_update_t *given) noexcept : update_(given) {}

    /// Name of the stream.
    const char *name() const noexcept { return update_->name; }
    /// Labels of the stream, "device=vda,node=n1"; empty if it has none.
    const char *labels() const noexcept { return update_->labels; }
    /// Time of the sample, ns since the epoch.
    std::int64_t ts() const noexcept { return update_->ts; }
    /// Type of the value: BARO_INT, ...
    int type() const noexcept { return update_->type; }
    /// The value, if it is a number.
    std::optional<double> number() const noexcept
    {
        if (update_->type == BARO_FLOAT)
            return update_->as.f;
        if (update_->type == BARO_INT || update_->type == BARO_BOOL)
            return static_cast<double>(update_->as.i);
        return std::nullopt;
    }
    /// The value, if it is text, JSON or bytes; else empty.
    std::string_view text() const noexcept
    {
        const int type = update_->type;
        const bool is_text = type == BARO_TEXT || type == BARO_JSON || type == BARO_BYTES;
        return is_text ? std::string_view(update_->as.text, update_->bytes) : std::string_view();
    }
    /// Number of earlier samples of this stream that were overwritten before they could be read.
    std::uint64_t missed() const noexcept { return update_->missed; }
    /// The sample as baro.h has it.
    const baro_update_t &raw() const noexcept { return *update_; }

private:
    const baro_update_t *update_;
};

/// A subscription: all new samples of the streams that match a pattern; for one thread at a time.
class subscription {
public:
    /// Returns the next sample of any of the streams; nothing if none came in time.
    std::optional<update> next(std::chrono::nanoseconds timeout)
    {
        const baro_update_t *given = nullptr;
        const int code = baro_subscription_next(subscription_.get(), timeout.count(), &given);
        if (code < 0)
            throw error(code);
        return code == BARO_OK ? std::optional<update>(given) : std::nullopt;
    }

private:
    friend class node;
    explicit subscription(baro_subscription_t *given) : subscription_(given) {}
    struct closer {
        void operator()(baro_subscription_t *given) const noexcept { baro_subscription_close(given); }
    };
    std::unique_ptr<baro_subscription_t, closer> subscription_;
};

/// A control event; valid until its subscription is asked for the next one or ends.
class control_event {
public:
    explicit control_event(const baro_control_event_t *given) noexcept : event_(given) {}

    /// What has happened.
    const char *kind() const noexcept { return event_->kind; }
    /// What it happened to; may be empty.
    const char *subject() const noexcept { return event_->subject; }
    /// The number that belongs to it.
    std::optional<double> value() const noexcept
    {
        return event_->value == event_->value ? std::optional<double>(event_->value) : std::nullopt;
    }
    /// How sure its source is, 0 to 1.
    double confidence() const noexcept { return event_->confidence; }
    /// Time since it was published.
    std::chrono::nanoseconds age() const noexcept { return std::chrono::nanoseconds(event_->age_ns); }
    /// Number among the events of its thread, from 1 on.
    std::uint64_t sequence() const noexcept { return event_->sequence; }
    /// Number of events of its thread that were lost before it.
    std::uint64_t missed() const noexcept { return event_->missed; }
    /// The text of a property; nothing without it.
    std::optional<std::string_view> property(const char *name) const noexcept
    {
        const char *text = baro_control_property(event_, name);
        return text ? std::optional<std::string_view>(text) : std::nullopt;
    }
    /// The event as baro.h has it, with its source.
    const baro_control_event_t &raw() const noexcept { return *event_; }

private:
    const baro_control_event_t *event_;
};

/// A subscription to control events; for one thread at a time.
class control_subscription {
public:
    /// Returns the next event that is here already.
    std::optional<control_event> check() { return wait(std::chrono::nanoseconds(0)); }
    /// Returns the next event; nothing if none came in time.
    std::optional<control_event> wait(std::chrono::nanoseconds timeout)
    {
        const baro_control_event_t *given = nullptr;
        const int code = baro_control_wait(subscription_.get(), timeout.count(), &given);
        if (code < 0)
            throw error(code);
        return code == BARO_OK ? std::optional<control_event>(given) : std::nullopt;
    }
    /// Sets the function that dispatch runs. An exception that it throws ends the dispatch, and is
    /// thrown there.
    void on(std::function<void(const control_event &)> handler) { handler_ = std::move(handler); }
    /// Waits for an event, and runs the function for it and for those that are here by then, in this
    /// thread. Returns for how many.
    int dispatch(std::chrono::nanoseconds timeout)
    {
        running now{&handler_, nullptr};
        int code = baro_control_on(subscription_.get(), handler_ ? run : nullptr, &now);
        if (code >= 0)
            code = baro_control_dispatch(subscription_.get(), timeout.count());
        if (now.thrown)
            std::rethrow_exception(now.thrown);
        if (code < 0)
            throw error(code);
        return code;
    }
    /// Number of events that were lost so far.
    std::uint64_t missed() const noexcept { return baro_control_missed(subscription_.get()); }

private:
    friend class node;
    explicit control_subscription(baro_control_subscription_t *given) : subscription_(given) {}
    struct running {
        std::function<void(const control_event &)> *handler;
        std::exception_ptr thrown;
    };
    static int run(const baro_control_event_t *event, void *data) noexcept
    {
        auto *now = static_cast<running *>(data);
        try {
            (*now->handler)(control_event(event));
            return 0;
        } catch (...) {
            now->thrown = std::current_exception();
            return 1;
        }
    }
    struct closer {
        void operator()(baro_control_subscription_t *given) const noexcept { baro_control_close(given); }
    };
    std::unique_ptr<baro_control_subscription_t, closer> subscription_;
    std::function<void(const control_event &)> handler_;
};

/// The result of an SQL statement.
class table {
public:
    std::size_t rows() const noexcept { return baro_table_rows(table_.get()); }
    std::size_t columns() const noexcept { return baro_table_columns(table_.get()); }
    std::string name(std::size_t column) const
    {
        const char *text = baro_table_name(table_.get(), column);
        return text ? text : "";
    }
    baro_cell_t cell(std::size_t row, std::size_t column) const noexcept
    {
        return baro_table_cell(table_.get(), row, column);
    }

private:
    friend class node;
    explicit table(baro_table_t *given) : table_(given) {}
    struct closer {
        void operator()(baro_table_t *given) const noexcept { baro_table_free(given); }
    };
    std::unique_ptr<baro_table_t, closer> table_;
};

/// The streams of this node, or of another one that is mirrored here, for reading.
class node {
public:
    explicit node(const char *run_dir = nullptr) : node_(baro_node_open(run_dir))
    {
        if (!node_)
            throw error(BARO_E_NO_AGENT);
    }
    /// Another node of the cluster, as it is mirrored in memory of this one; it may outlive this
    /// object. The name of this node gives its own streams.
    node mirrored(const std::string &name) const
    {
        baro_node_t *found = baro_node_open_mirrored(node_.get(), name.c_str());
        if (!found)
            throw error(BARO_E_UNKNOWN);
        return node(found);
    }
    /// Whether the values are kept up to date: the agent lives, and another node is heard.
    bool is_alive() const noexcept { return baro_node_is_alive(node_.get()) > 0; }
    baro::stream stream(const char *selector) const
    {
        baro_stream_t *found = baro_stream_open(node_.get(), selector);
        if (!found)
            throw error(BARO_E_UNKNOWN);
        return baro::stream(found);
    }
    /// Follows the streams that match a pattern, such as "disk.*{device=nvme*}", including those
    /// that are registered later.
    baro::subscription subscribe(const char *pattern) const
    {
        baro_subscription_t *made = baro_subscribe(node_.get(), pattern);
        if (!made)
            throw error(BARO_E_ARGUMENT);
        return baro::subscription(made);
    }
    /// Subscribes to control events: BARO_CONTROL_FILTER_INIT wants all, and new ones only.
    baro::control_subscription control_events(const baro_control_filter_t &filter = BARO_CONTROL_FILTER_INIT) const
    {
        baro_control_subscription_t *made = baro_control_subscribe(node_.get(), &filter);
        if (!made)
            throw error(BARO_E_ARGUMENT);
        return baro::control_subscription(made);
    }
    baro::table query(const std::string &sql) const
    {
        baro_table_t *answer = nullptr;
        const int code = baro_query(node_.get(), sql.c_str(), &answer);
        if (code < 0)
            throw error(code);
        return baro::table(answer);
    }

private:
    explicit node(baro_node_t *given) : node_(given) {}
    struct closer {
        void operator()(baro_node_t *given) const noexcept { baro_node_close(given); }
    };
    std::unique_ptr<baro_node_t, closer> node_;
};

} // namespace baro

#endif
