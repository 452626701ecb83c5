// The deterministic driver of the fuzz targets.
//
//     fuzz TARGET [--runs N] [--seed S] [--first I] [--corpus FOLDER] [--all-outcomes] [FILE...]
//
// The first inputs are the seeds of the target and the files of the corpus, unchanged. Every later input is a mutation, which
// depends only on its number and on the seed. If an input fails, the driver prints the input and the command that runs this input
// alone. The driver also prints the longest CPU time of an input.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>

#include "mutator.hpp"

// With the address sanitizer, this function sets a function that runs before an error ends the program.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*)());

namespace roci::fuzz {
namespace {

struct Options {
    std::string target, corpus, write_seeds;
    uint64_t runs = 1000, seed = 1, first = 0;
    bool all_outcomes = false, list = false;
    std::vector<std::string> files;
};

/// The input that runs now. The handlers of fatal errors print it.
struct Running {
    std::string command;
    uint64_t number = 0;
    const Bytes* input = nullptr;
} running;

void print_running() {
    if (running.input == nullptr) return;
    const Bytes& in = *std::exchange(running.input, nullptr);
    std::fprintf(stderr, "the input that failed has %zu bytes:\n", in.size());
    for (size_t i = 0; i < in.size(); ++i) std::fprintf(stderr, "%02x%s", in[i], i % 64 == 63 ? "\n" : "");
    std::fprintf(stderr, "\nrepeat: %s --first %llu --runs 1\n", running.command.c_str(),
                 static_cast<unsigned long long>(running.number));
    std::fflush(stderr);
}

void on_signal(int signal) {
    print_running();
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

/// SIGTERM is included, because the test harness ends a hanging test by SIGTERM.
void watch_for_failures() {
    for (const int s : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGINT}) std::signal(s, on_signal);
    if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(print_running);
    std::set_terminate([] {
        try {
            if (const auto e = std::current_exception()) std::rethrow_exception(e);
        } catch (const std::exception& e) {
            std::fprintf(stderr, "exception: %s\n", e.what());
        } catch (...) {
        }
        std::abort();
    });
}

Bytes read_file(const std::filesystem::path& name) {
    std::ifstream in(name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// Returns the contents of the files of a folder, in the order of their names.
std::vector<Bytes> read_folder(const std::string& folder) {
    std::vector<std::filesystem::path> files;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder, none)) files.push_back(entry.path());
    std::ranges::sort(files);
    std::vector<Bytes> all;
    for (const auto& file : files) all.push_back(read_file(file));
    return all;
}

void write_seeds(const Target& target, const std::string& folder) {
    std::filesystem::create_directories(folder);
    size_t n = 0;
    for (const Bytes& seed : target.seeds())
        std::ofstream(folder + "/seed-" + std::to_string(n++), std::ios::binary)
            .write(reinterpret_cast<const char*>(seed.data()), std::streamsize(seed.size()));
}

/// Returns the CPU time of the program.
double cpu_ms() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) * 1e3 + double(t.tv_nsec) / 1e6;
}

class Driver {
public:
    Driver(const Target& target, const Options& o) : target_(target), options_(o), mutator_(target, corpus()) {}

    int run() {
        for (uint64_t i = options_.first; i < options_.first + options_.runs; ++i) {
            Rng rng(options_.seed << 40 ^ i);
            run_one(i, i < mutator_.corpus().size() ? mutator_.corpus()[i] : mutator_.make(rng));
        }
        return report();
    }
    int run_files() {
        for (const std::string& name : options_.files) run_one(0, read_file(name));
        return report();
    }

private:
    std::vector<Bytes> corpus() const {
        std::vector<Bytes> all = target_.seeds();
        std::ranges::move(read_folder(options_.corpus + "/" + target_.name), std::back_inserter(all));
        return all;
    }
    void run_one(uint64_t number, const Bytes& input) {
        running.number = number;
        running.input = &input;
        const double start = cpu_ms();
        target_.run(input, reach_);
        const double took = cpu_ms() - start;
        running.input = nullptr;
        ++runs_;
        total_ms_ += took;
        if (took > slowest_ms_) slowest_ms_ = took, slowest_ = number;
    }
    int report() const {
        bool all = true;
        for (const auto& [number, name] : target_.outcomes()) {
            std::printf("  %-40s %llu\n", name.c_str(), static_cast<unsigned long long>(reach_.of(number)));
            all = all && reach_.of(number) != 0;
        }
        std::printf("%s: %llu inputs, seed %llu, %.1f s of CPU time, longest %.2f ms (input %llu)\n", target_.name,
                    static_cast<unsigned long long>(runs_), static_cast<unsigned long long>(options_.seed), total_ms_ / 1000,
                    slowest_ms_, static_cast<unsigned long long>(slowest_));
        if (all || !options_.all_outcomes) return 0;
        std::fprintf(stderr, "an outcome never occurred: the inputs do not reach it\n");
        return 1;
    }

    const Target& target_;
    const Options& options_;
    const Mutator mutator_;
    Reach reach_;
    uint64_t runs_ = 0, slowest_ = 0;
    double total_ms_ = 0, slowest_ms_ = 0;
};

int start(const Options& o, const char* program) {
    if (o.list) {
        for (const Target& t : targets()) std::printf("%s\n", t.name);
        return 0;
    }
    const Target* target = find_target(o.target);
    if (target == nullptr) {
        std::fprintf(stderr, "there is no target '%s'; --list prints the targets\n", o.target.c_str());
        return 2;
    }
    if (!o.write_seeds.empty()) return write_seeds(*target, o.write_seeds), 0;
    running.command = std::string(program) + " " + o.target + " --corpus " + o.corpus + " --seed " + std::to_string(o.seed);
    watch_for_failures();
    Driver driver(*target, o);
    return o.files.empty() ? driver.run() : driver.run_files();
}

}  // namespace
}  // namespace roci::fuzz

int main(int argc, char** argv) {
    roci::fuzz::Options o;
    o.corpus = ROCI_CORPUS;
    CLI::App app{"Runs a fuzz target with the inputs of a seed"};
    app.add_option("target", o.target, "name of the target");
    app.add_option("files", o.files, "run only these inputs");
    app.add_option("--runs", o.runs, "number of inputs");
    app.add_option("--seed", o.seed, "seed of the mutations");
    app.add_option("--first", o.first, "number of the first input");
    app.add_option("--corpus", o.corpus, "folder with one folder of inputs per target");
    app.add_option("--write-seeds", o.write_seeds, "only write the seeds of the target into this folder");
    app.add_flag("--all-outcomes", o.all_outcomes, "fail if an outcome of the target never occurs");
    app.add_flag("--list", o.list, "only print the names of the targets");
    CLI11_PARSE(app, argc, argv);
    return roci::fuzz::start(o, argv[0]);
}
