// Prints the samples of a subscription, one per line; goes on when it gets a command.
#include <baro.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

static void show(const baro::update &update)
{
    std::printf("%s{%s} ", update.name(), update.labels());
    if (update.type() == BARO_FLOAT)
        std::printf("%.2f", *update.number());
    else if (const auto number = update.number())
        std::printf("%.0f", *number);
    else if (update.type() == BARO_FLOATS)
        for (std::size_t at = 0; at < update.raw().bytes / 8; ++at)
            std::printf("%.2f;", update.raw().as.floats[at]);
    else
        std::fwrite(update.text().data(), 1, update.text().size(), stdout);
    std::printf(" %llu\n", static_cast<unsigned long long>(update.missed()));
    std::fflush(stdout);
}

int main()
{
    const baro::node node;
    try {
        node.subscribe("{");
        return 1;
    } catch (const baro::error &error) {
        if (error.code() != BARO_E_ARGUMENT)
            return 2;
    }
    auto values = node.subscribe("value.*");
    auto moved = std::move(values);
    char line[8];
    do {
        const auto update = moved.next(std::chrono::minutes(1));
        if (!update || update->ts() <= 0)
            return 3;
        show(*update);
    } while (std::fgets(line, sizeof line, stdin));
    return moved.next({}) ? 4 : 0;
}
