// Server maps in C++, without an agent.
#include <baro.hpp>

#include <cstdlib>

#define CHECK(what)       \
    do {                  \
        if (!(what))      \
            std::abort(); \
    } while (0)

int main()
{
    baro::publisher app("maps");
    auto map = app.server_map("io", {3, 1});
    auto server = app.map_server("io", 3);
    CHECK(map && server && !app.server_map("none", {}));
    {
        auto op = map.operation();
        CHECK(op.start() == baro::map_start::off && op.epoch() == 0);
        CHECK(op.size() == 2 && op[0] == 1 && op.servers().back() == 3);
        auto request = server.serve(op.epoch());
        CHECK(request);
        request.end(10);
        const auto other = server.serve(5);
        CHECK(!other && other.fence() == 5);
        op.refused(2);
    }
    const auto late = map.operation(std::chrono::milliseconds(5));
    CHECK(late.start() == baro::map_start::late);
    return 0;
}
