/* Two ranks exchange messages of 0 bytes to 1 MiB, then sum numbers of both ranks. Checks every byte. Prints "talk: ok". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLargest = 1 << 20, kRounds = 20, kNumbers = 1 << 15 };

static unsigned char byte_of(int size, int round, int i) { return (unsigned char)(size * 7 + round * 13 + i * 3 + (i >> 8)); }

static void fail(const char* what, int size) {
    fprintf(stderr, "talk: %s of %d bytes is wrong\n", what, size);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check(const unsigned char* data, int size, int round) {
    for (int i = 0; i < size; ++i)
        if (data[i] != byte_of(size, round, i)) fail("a message", size);
}

static void ping_pong(int rank, int size, unsigned char* buffer) {
    for (int round = 0; round < kRounds; ++round) {
        if (rank == 0) {
            for (int i = 0; i < size; ++i) buffer[i] = byte_of(size, round, i);
            MPI_Send(buffer, size, MPI_BYTE, 1, size, MPI_COMM_WORLD);
            for (int i = 0; i < size; ++i) buffer[i] = 0;
            MPI_Recv(buffer, size, MPI_BYTE, 1, size, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(buffer, size, round);
        } else {
            MPI_Recv(buffer, size, MPI_BYTE, 0, size, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check(buffer, size, round);
            MPI_Send(buffer, size, MPI_BYTE, 0, size, MPI_COMM_WORLD);
        }
    }
}

static void sum(int rank, int ranks, int count) {
    static long mine[kNumbers], all[kNumbers];
    for (int i = 0; i < count; ++i) mine[i] = (long)i * (rank + 1);
    MPI_Allreduce(mine, all, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; ++i)
        if (all[i] != (long)i * ranks * (ranks + 1) / 2) fail("a sum", count * (int)sizeof(long));
}

int main(int argc, char** argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned char* buffer = malloc(kLargest);
    if (ranks != 2 || buffer == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
    for (int size = 0; size <= kLargest; size = size == 0 ? 1 : size * 4) ping_pong(rank, size, buffer);
    for (int count = 1; count <= kNumbers; count *= 8) sum(rank, ranks, count);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("talk: ok\n");
    free(buffer);
    MPI_Finalize();
    return 0;
}
