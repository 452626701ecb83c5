// Makes SIGINT and SIGTERM readable at a descriptor, so that a command can finish its work before it ends.
#pragma once

#include <sys/signalfd.h>

#include <csignal>

#include "control_client.hpp"

namespace roci::cli {

/// Blocks SIGINT and SIGTERM. Returns a descriptor that becomes readable when SIGINT or SIGTERM arrives.
inline UniqueFd ending_signals() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    return UniqueFd(signalfd(-1, &set, SFD_CLOEXEC));
}

}  // namespace roci::cli
