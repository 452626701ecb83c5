#include "why.hpp"

#include <fmt/format.h>

#include <cstdio>

#include "status.hpp"

namespace roci::cli {

int why(const WhyOptions& options) {
    std::string reason;
    auto daemon = find_daemon(options.where, reason);
    if (daemon) {
        Answer answer = daemon->session.request(abi::Op::why, abi::WhyRequest{options.qpn, 0});
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
