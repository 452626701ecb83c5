#pragma once
/// The state of the room, one per process.

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
    KeptFd maps;  ///< for VMA queries
    KeptFd uffd;  ///< for freezing
};

extern pthread_mutex_t room_mutex;  ///< held for every use of the following variables, and across fork()
extern Room* room;                  ///< null until first used; a fork's child starts with none
extern uint64_t last_token;         ///< not reset in a fork's child, so that inherited tokens differ from its own

struct Locked {
    Locked() { pthread_mutex_lock(&room_mutex); }
    ~Locked() { pthread_mutex_unlock(&room_mutex); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
};

}  // namespace roci::memory
