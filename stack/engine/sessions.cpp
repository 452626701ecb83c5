#include "engine/sessions.hpp"

#include <algorithm>
#include <limits>

namespace roci::engine {
namespace {

/// Allocates the lowest free number. Returns 0 if there is none.
uint16_t take_number(std::vector<bool>& used) {
    const auto at = size_t(std::find(used.begin(), used.end(), false) - used.begin());
    if (at > std::numeric_limits<uint16_t>::max()) return 0;
    if (at == used.size()) used.push_back(false);
    used[at] = true;
    return uint16_t(at);
}

}  // namespace

bool Sessions::attach(qp::Context& ctx, const Owner& owner, abi::DoorbellPage* page) {
    auto user = std::find_if(users_.begin(), users_.end(), [&](const auto& u) { return u->uid == owner.uid; });
    const uint16_t number = user != users_.end() ? (*user)->number : take_number(numbers_);
    const uint16_t share = number != 0 ? take_number(shares_) : uint16_t{0};
    if (share == 0) {
        if (user == users_.end()) numbers_[number] = number == 0;
        return false;
    }
    if (user == users_.end()) {
        users_.push_back(std::make_unique<User>());
        user = users_.end() - 1;
        (*user)->uid = owner.uid;
        (*user)->number = number;
    }
    ctx.requesters.open(share, number, owner.rate);
    ctx.responders.open(share, number, owner.rate);
    auto session = std::make_unique<Session>();
    session->id = owner.session;
    session->page = page;
    session->share = share;
    (*user)->sessions.push_back(session.get());
    all_[owner.session] = std::move(session);
    return true;
}

void Sessions::detach(qp::Context& ctx, uint32_t id) {
    const auto found = all_.find(id);
    if (found == all_.end()) return;
    Session* const session = found->second.get();
    const auto owner =
        std::find_if(users_.begin(), users_.end(), [&](const auto& u) { return std::erase(u->sessions, session) != 0; });
    (*owner)->next = 0;
    ctx.requesters.close(session->share);
    ctx.responders.close(session->share);
    if ((*owner)->sessions.empty()) {
        ctx.requesters.leave((*owner)->number);
        ctx.responders.leave((*owner)->number);
        numbers_[(*owner)->number] = false;
        users_.erase(owner);
        next_user_ = 0;
    }
    shares_[session->share] = false;
    all_.erase(found);
}

Session* Sessions::find(uint32_t id) {
    const auto found = all_.find(id);
    return found != all_.end() ? found->second.get() : nullptr;
}

void Sessions::enter(qp::Context& ctx, const Session* session, qp::Qp& qp) {
    const bool asks = qp.asking.listed(), answers = qp.answering.listed();
    qp::deactivate(ctx, qp);
    qp.share = session != nullptr ? session->share : uint16_t{0};
    if (asks) qp::activate(ctx, qp);
    if (answers) qp::activate_responder(ctx, qp);
}

}  // namespace roci::engine
