#pragma once
/// The state of memory registration: one Room per process.

#include <pthread.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "files.hpp"
#include "kept.hpp"

namespace roci::memory {

struct Room {
    Files files;
    std::unordered_map<uint64_t, std::vector<Use>> tokens;
    KeptFd maps;  ///< used for VMA queries
    KeptFd uffd;  ///< used for freezing
};

extern pthread_mutex_t room_mutex;  ///< held while the following variables are used, and across fork()
extern Room* room;                  ///< null until the first use; a fork's child starts with null
extern uint64_t last_token;         ///< not reset in a fork's child, so that inherited tokens differ from the child's own

struct Locked {
    Locked() { pthread_mutex_lock(&room_mutex); }
    ~Locked() { pthread_mutex_unlock(&room_mutex); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
};

}  // namespace roci::memory
