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
    KeptFd maps;  ///< /proc/self/maps, for VMA queries
    KeptFd uffd;  ///< a userfaultfd, for freezing pages
};

extern pthread_mutex_t room_mutex;  ///< held while the following variables are used, and across fork()
extern Room* room;                  ///< null before the first acquire() of the process; a fork's child starts with null
extern uint64_t last_token;         ///< not reset in a fork's child, so that tokens of the parent differ from tokens of the child

struct Locked {
    Locked() { pthread_mutex_lock(&room_mutex); }
    ~Locked() { pthread_mutex_unlock(&room_mutex); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;
};

}  // namespace roci::memory
