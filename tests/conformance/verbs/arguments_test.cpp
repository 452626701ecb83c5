// Runs the rows of arguments_*.cpp. If ROCI_OTHER_PROVIDER is set, the rows run on Soft-RoCE. The test prints each
// difference. A difference without a reason in the row is a failure.
#include <fcntl.h>

#include <cstdio>

#include "arguments.hpp"

namespace verbs_test {

namespace {

ibv_qp* make_qp(End& end, ibv_qp_type type, ibv_srq* srq = nullptr) {
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = end.cq;
    attr.srq = srq;
    attr.qp_type = type;
    attr.cap = {16, 16, 2, 2, 32};
    return ibv_create_qp(end.pd, &attr);
}

bool connected(End& a, End& b) {
    return a.to_init() == 0 && b.to_init() == 0 && a.to_rtr(b, b.qp->qp_num, 200) == 0 && b.to_rtr(a, a.qp->qp_num, 100) == 0 &&
           a.to_rts(100) == 0 && b.to_rts(200) == 0;
}

}  // namespace

Stage::Stage() {
    const auto need = [this](bool there) { whole = whole && there; };
    need(a.context != nullptr && b.context != nullptr && a.mr != nullptr && b.mr != nullptr);
    if (!whole) return;
    need(ibv_query_device(a.context, &device) == 0);
    need(a.create() != nullptr && b.create() != nullptr && connected(a, b));
    if (!whole) return;
    need((reset = make_qp(a, IBV_QPT_RC)) != nullptr);
    need((init = make_qp(a, IBV_QPT_RC)) != nullptr && a.to_init(init) == 0);
    need((rtr = make_qp(a, IBV_QPT_RC)) != nullptr && a.to_init(rtr) == 0 && a.to_rtr(b, b.qp->qp_num, 7, rtr) == 0);
    need((ud = make_qp(a, IBV_QPT_UD)) != nullptr && a.to_init(ud) == 0 && a.to_rtr(b, 0, 0, ud) == 0 && a.to_rts(0, ud) == 0);
    ibv_srq_init_attr srq_attr{};
    srq_attr.attr = {16, 2, 0};
    need((srq = ibv_create_srq(a.pd, &srq_attr)) != nullptr);
    need((on_srq = make_qp(a, IBV_QPT_RC, srq)) != nullptr && a.to_init(on_srq) == 0);
    need((other = ibv_alloc_pd(a.context)) != nullptr);
    need((channel = ibv_create_comp_channel(a.context)) != nullptr && fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    need((on_channel = ibv_create_cq(a.context, 16, nullptr, channel, 0)) != nullptr);
    need((mw1 = ibv_alloc_mw(a.pd, IBV_MW_TYPE_1)) != nullptr);
    need((mw2 = ibv_alloc_mw(a.pd, IBV_MW_TYPE_2)) != nullptr);
    ibv_ah_attr address = End::address_of(b);
    need((ah = ibv_create_ah(a.pd, &address)) != nullptr);
    need((foreign = ibv_reg_mr(other, a.memory.data(), 4096, kFullAccess | IBV_ACCESS_MW_BIND)) != nullptr);
    need((plain = ibv_reg_mr(a.pd, a.memory.data(), 4096, kFullAccess)) != nullptr);
    fcntl(a.context->async_fd, F_SETFL, O_NONBLOCK);
    group.raw[0] = 0xff;
    group.raw[1] = 0x0e;
    group.raw[15] = 0x51;
}

Stage::~Stage() {
    const auto destroy = [](auto* object, auto verb) { EXPECT_EQ(object != nullptr ? verb(object) : 0, 0); };
    for (ibv_mr* mr : {foreign, plain}) destroy(mr, ibv_dereg_mr);
    for (ibv_mw* mw : {mw1, mw2}) destroy(mw, ibv_dealloc_mw);
    destroy(ah, ibv_destroy_ah);
    for (ibv_qp* qp : {reset, init, rtr, ud, on_srq}) destroy(qp, ibv_destroy_qp);
    destroy(srq, ibv_destroy_srq);
    destroy(on_channel, ibv_destroy_cq);
    destroy(channel, ibv_destroy_comp_channel);
    destroy(other, ibv_dealloc_pd);
}

std::string Stage::snapshot() {
    std::string text;
    const auto add = [&](const char* name, uint64_t value) { text += std::string(name) + " " + std::to_string(value) + "\n"; };
    const struct {
        const char* name;
        ibv_qp* qp;
    } qps[] = {{"a", a.qp}, {"b", b.qp}, {"reset", reset}, {"init", init}, {"rtr", rtr}, {"ud", ud}, {"on_srq", on_srq}};
    for (const auto& row : qps) {
        ibv_qp_attr attr{};
        ibv_qp_init_attr init_attr{};
        EXPECT_EQ(ibv_query_qp(row.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init_attr), 0) << row.name;
        add(row.name, attr.qp_state);
        add("state in the struct", row.qp->state);
        add("port", attr.port_num);
        add("MTU", attr.path_mtu);
        add("timeout", attr.timeout);
        add("rights", attr.qp_access_flags);
    }
    ibv_srq_attr srq_attr{};
    EXPECT_EQ(ibv_query_srq(srq, &srq_attr), 0);
    add("SRQ", srq_attr.max_wr);
    add("limit", srq_attr.srq_limit);
    for (const ibv_cq* cq : {a.cq, b.cq, on_channel}) add("CQ", uint64_t(cq->cqe));
    for (const ibv_mw* mw : {mw1, mw2}) add("window", mw->rkey);
    for (const ibv_mr* mr : {a.mr, foreign, plain}) add("region", mr->rkey);
    add("CQs of the channel", uint64_t(channel->refcnt));
    return text;
}

bool Stage::works() {
    if (b.receive(1, 0, 8) != 0 || a.send(2, 8, 8) != 0) return false;
    const ibv_wc received = b.poll(), sent = a.poll();
    ibv_wc more{};
    return received.status == IBV_WC_SUCCESS && sent.status == IBV_WC_SUCCESS && received.wr_id == 1 && sent.wr_id == 2 &&
           ibv_poll_cq(a.cq, 1, &more) == 0 && ibv_poll_cq(b.cq, 1, &more) == 0 && ibv_poll_cq(on_channel, 1, &more) == 0;
}

namespace {

/// Compares a result with the result that the row expects from this provider. If the row states that Soft-RoCE differs,
/// prints the row.
void judge(const Row& row, const Got& got) {
    const std::string name = std::string(row.verb) + ", " + row.what;
    if (elsewhere()) {
        const int expected = row.at_rxe == -1 ? row.error : row.at_rxe;
        EXPECT_EQ(got.error, expected) << name << ": Soft-RoCE answers " << strerror(got.error);
        if (row.at_rxe != -1)
            std::printf("differs: %s: we %s (%d), Soft-RoCE %s (%d): %s\n", name.c_str(), strerror(row.error), row.error,
                        strerror(got.error), got.error, row.why);
        return;
    }
    EXPECT_EQ(got.error, row.error) << name << ": " << strerror(got.error);
    EXPECT_EQ(row.way == Way::header || row.error == 0 ? row.error : got.left, row.error) << name << ": errno";
}

void run(std::span<const Row> rows) {
    Stage stage;
    ASSERT_TRUE(stage.whole) << "an object could not be made: " << strerror(errno);
    ASSERT_TRUE(stage.works());
    const std::string before = stage.snapshot();
    for (const Row& row : rows) {
        if (elsewhere() && row.at_rxe == kSkip) {
            std::printf("not run: %s, %s: %s\n", row.verb, row.what, row.why);
            continue;
        }
        errno = 0;
        const Got got = row.call(stage);
        judge(row, got);
        EXPECT_EQ(stage.snapshot(), before) << row.verb << ", " << row.what << ": it failed, and changed something";
        ASSERT_TRUE(stage.works()) << row.verb << ", " << row.what << ": the QPs beside it work no more";
    }
}

}  // namespace

TEST(Arguments, OfObjects) { run(object_rows()); }
TEST(Arguments, OfMemory) { run(memory_rows()); }
TEST(Arguments, OfQps) { run(qp_rows()); }
TEST(Arguments, OfWork) { run(work_rows()); }

}  // namespace verbs_test
