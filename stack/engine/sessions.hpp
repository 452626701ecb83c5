// The sessions that an engine serves, by user, and whose doorbells it looks at in a round. Users take turns here as in the run
// queues: what one of them rings, or how many sessions it opens, delays the others by a bounded time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "abi/rings.hpp"
#include "qp/context.hpp"
#include "rings/doorbell.hpp"

namespace roci::engine {

struct alignas(64) Session {  // no line of another engine's
    uint32_t id = 0;
    abi::DoorbellPage* page = nullptr;
    uint16_t share = 0;              ///< in the run queues
    uint32_t next_word = 0;          ///< of the page: where the next look starts
    std::vector<qp::Qp*> slots;      ///< by doorbell bit
    std::vector<qp::Srq*> tag_srqs;  ///< by doorbell bit - abi::kFirstTagSlot
};

class Sessions {
public:
    /// Limits of a round: users and sessions that it looks at, and doorbells. A look ends with a whole word of doorbells.
    static constexpr uint32_t kRoundUsers = 32, kRoundSessions = 32, kRoundRings = 512, kSessionRings = 256;

    /// False: there are too many sessions.
    bool attach(qp::Context& ctx, uint32_t id, uint32_t uid, abi::DoorbellPage* page);
    /// Its QPs are gone.
    void detach(qp::Context& ctx, uint32_t id);
    /// nullptr: none has this number.
    Session* find(uint32_t id);
    /// From now on the QP's turns are the session's; nullptr: nobody's.
    void enter(qp::Context& ctx, const Session* session, qp::Qp& qp);

    template <class Visit>
    void for_each(Visit visit) const {
        for (const auto& [id, s] : all_) visit(*s);
    }
    /// Looks at the doorbells of the sessions whose turn it is; look(session, limit) returns how many were rung.
    template <class Look>
    bool look_around(Look look) {
        const auto count = uint32_t(users_.size());
        const uint32_t visited = std::min(count, kRoundUsers);
        bool any = false;
        for (uint32_t i = 0; i < visited; ++i) {
            User& user = *users_[next_user_];
            if (++next_user_ == count) next_user_ = 0;
            any |= look_at_user(user, visited, look);
        }
        return any;
    }
    /// True if a doorbell may be set, of any session.
    bool doorbell_pending() const {
        for (const auto& [id, s] : all_)
            if (rings::doorbell_pending(*s->page)) return true;
        return false;
    }

private:
    struct alignas(64) User {
        uint32_t uid = 0;
        uint16_t number = 0;  ///< in the run queues
        std::vector<Session*> sessions;
        uint32_t next = 0;  ///< of its sessions
    };

    template <class Look>
    bool look_at_user(User& user, uint32_t users, Look look) {
        const auto count = uint32_t(user.sessions.size());
        const uint32_t visits = std::min(count, std::max(kRoundSessions / users, 1u));
        uint32_t left = std::max(kRoundRings / users, 1u);
        bool any = false;
        for (uint32_t i = 0; i < visits && left != 0; ++i) {
            Session& s = *user.sessions[user.next];
            if (++user.next == count) user.next = 0;
            const uint32_t rung = look(s, std::min(left, kSessionRings));
            left -= std::min(left, rung);
            any |= rung != 0;
        }
        return any;
    }

    std::map<uint32_t, std::unique_ptr<Session>> all_;  ///< by number
    std::vector<std::unique_ptr<User>> users_;          ///< with sessions
    std::vector<bool> shares_{true}, numbers_{true};    ///< in use; 0 is for QPs without a session
    uint32_t next_user_ = 0;
};

}  // namespace roci::engine
