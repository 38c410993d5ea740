// Measurements of two sensors, and the mean of one of them over a while. Usage: time_series DIRECTORY
#include <dialsm.hpp>

#include <cstdio>
#include <iostream>
#include <string>

// Sorts as sensor and time do: digits with leading zeros.
static std::string key(const std::string &sensor, unsigned second)
{
    char time[16];
    std::snprintf(time, sizeof time, "%010u", second);
    return sensor + "/" + time;
}

int main(int argc, char **argv)
try {
    if (argc != 2)
        return 2;
    dialsm::Options options;
    options.set("shards", 4).set("compression", "lz4");
    dialsm::Db db = dialsm::Db::open(argv[1], options);

    for (unsigned second = 0; second < 3600; second++) {
        // Both, or none.
        dialsm::Batch batch;
        batch.put(key("inside", second), std::to_string(20 + second / 1800));
        batch.put(key("outside", second), std::to_string(second % 10));
        db.write(batch);
    }

    // Exceptions: from the half hour on, as it is now, whatever is written meanwhile.
    double sum = 0;
    int count = 0;
    dialsm::ReadOptions range;
    range.from(key("inside", 1795)).to(key("inside", 1805)).fill_cache(false);
    dialsm::Iterator measured = db.iterate(range);
    for (auto [at, value] : measured) {
        sum += std::stod(std::string(value));
        count++;
    }
    std::cout << count << " measurements, mean " << sum / count << '\n';

    // A status, for those who like that better: the last one that is there.
    dialsm::Status status;
    dialsm::Iterator last = db.iterate(dialsm::ReadOptions().prefix("outside/"));
    last.seek_to_last(status);
    if (!status)
        std::cerr << status.message() << '\n';
    else if (last.valid())
        std::cout << last.key() << ": " << last.value() << '\n';
    db.close();
} catch (const dialsm::Error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
