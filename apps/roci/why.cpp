#include "why.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "status.hpp"

namespace roci::cli {

int why(const WhyOptions& options) {
    std::string reason;
    if (options.qpn == 0 && !options.connections) {
        fmt::print(stderr, "roci: roci why needs the number of a queue pair, or --cm\n");
        return 1;
    }
    auto daemon = find_daemon(options.where, reason);
    if (daemon) {
        Answer answer = daemon->session.request(abi::Op::why, abi::WhyRequest{options.qpn, options.connections ? 1u : 0u});
        if (answer.error == 0 && !answer.fds.empty()) {
            fmt::print("{}", read_text(answer.fds.back().get()));
            return 0;
        }
        reason = answer.reason.empty() ? "rocid gave no answer" : answer.reason;
    }
    fmt::print(stderr, "roci: {}\n", reason);
    return 1;
}

}  // namespace roci::cli
