// Each class of baro.hpp. The run directory is the first argument; its segment holds disk.read.bytes.
#include <baro.hpp>

#include <cstdio>
#include <cstdlib>

#define CHECK(what)                                                                             \
    do {                                                                                        \
        if (!(what)) {                                                                          \
            std::fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, baro_error()); \
            std::exit(1);                                                                       \
        }                                                                                       \
    } while (0)

static void publish()
{
    baro::publisher app{"classes"};
    CHECK(app.is_enabled() && app.label("phase", "test") && !app.label("no good", ""));
    const auto step = app.publication("kinds", baro::readers::all);
    const auto i = step.value<int>("i", {"1", baro::kind::counter, "a number"});
    const auto f = step.value<float>("f");
    const auto b = step.value<bool>("b");
    const auto t = step.value<std::string>("t");
    CHECK(step && i && f && b && t && !step.value<int>("No") && !baro::value<int>());
    const double array[] = {1.5, -2.5};
    {
        const baro::frame first{step, 1};
        i.put(-1);
        f = 0.5F;
        b.put(true);
        t.put("text");
        t.put_json("[1]");
        t.put_bytes("\0b", 2);
        t.put_floats(array, 2);
    }
    baro::value<int>().put(1);
    baro::publication().frame(1);
    CHECK(app.lost() == 0);
}

static void read(const char *run_dir)
{
    const baro::node node{run_dir};
    auto stream = node.stream("disk.read.bytes");
    CHECK(stream.latest()->value == 42.5 && stream.wait(std::chrono::milliseconds(1)));
    CHECK(!node.stream("empty").latest() && !node.stream("empty").latest_expected());
    const auto expected = node.stream("memory.free.bytes").latest_expected();
    CHECK(expected->value == 12 && expected->error == 2 && expected->is_predicted && expected->ts > 0);
    CHECK(stream.latest_expected()->value == 42.5 && !stream.latest_expected()->is_predicted);
    auto other = node.mirrored("n2");
    CHECK(node.is_alive() && other.is_alive() && !other.mirrored("n3").is_alive());
    CHECK(other.stream("disk.read.bytes").latest()->value == 7.5);
    CHECK(other.mirrored("n1").stream("disk.read.bytes").latest()->value == 42.5);
    try {
        other = node.mirrored("n22");
        CHECK(false);
    } catch (const baro::error &error) {
        CHECK(error.code() == BARO_E_UNKNOWN && std::string(error.what()).find("mirrored: n2, n3") != std::string::npos);
    }
    const auto table = node.query("SELECT value FROM disk_read_bytes WHERE newest");
    CHECK(table.rows() == 1 && table.columns() == 1 && table.name(0) == "value");
    CHECK(table.cell(0, 0).as.f == 42.5);
    try {
        node.query("SELECT nothing");
        CHECK(false);
    } catch (const baro::error &error) {
        CHECK(error.code() == BARO_E_SQL && std::string(error.what()) == baro::last_error());
    }
    try {
        baro::node("/nowhere");
        CHECK(false);
    } catch (const baro::error &error) {
        CHECK(error.code() == BARO_E_NO_AGENT);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    publish();
    read(argv[1]);
}
