#pragma once
/// The state of the room, one a process.

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
    KeptFd maps;  ///< asks for VMAs
    KeptFd uffd;  ///< freezes
};

extern pthread_mutex_t room_mutex;  ///< held for every use of what follows, and across fork()
extern Room* room;                  ///< null until first used; a fork's child starts with none
extern uint64_t last_token;         ///< goes on in a child, so that an inherited token is never mistaken for one of its own

struct Locked {
    Locked() { pthread_mutex_lock(&room_mutex); }
    ~Locked() { pthread_mutex_unlock(&room_mutex); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
};

}  // namespace roci::memory
