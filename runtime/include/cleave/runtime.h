/* The C ABI of the cleave runtime: load a compiled program, run its actions on
 * the ranks of a mesh, read and write its named buffers.
 *
 * Every function that can fail returns a cleave_status; cleave_last_error()
 * then has the message (per calling thread). No exception leaves this ABI.
 * Handles are used by one thread at a time; different handles are independent.
 */
#ifndef CLEAVE_RUNTIME_H
#define CLEAVE_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLEAVE_RUNTIME_VERSION 3

typedef enum cleave_status {
  CLEAVE_OK = 0,
  CLEAVE_BAD_ARGUMENT = 1, /* the caller's mistake: unknown name, wrong size */
  CLEAVE_BAD_PROGRAM = 2,  /* missing, damaged or inconsistent artifact */
  CLEAVE_UNSUPPORTED = 3,  /* a valid program that this runtime cannot serve */
  CLEAVE_OUT_OF_MEMORY = 4,
  CLEAVE_RANK_FAILED = 5, /* a rank failed while running; see cleave_failure */
  CLEAVE_TIMEOUT = 6,     /* the watchdog gave up on a collective */
  CLEAVE_INTERNAL = 7
} cleave_status;

const char *cleave_status_name(cleave_status status);

/* Message of this thread's last failed call; valid until its next call. */
const char *cleave_last_error(void);

/* --- Kernels --------------------------------------------------------------
 * What a kernel sees of its rank. Compiled kernels read the fields at these
 * offsets (8 bytes each, in this order), so fields are only ever appended. */
typedef struct cleave_ctx {
  const int64_t *axis_index; /* [num_axes], slowest axis first */
  const int64_t *axis_size;  /* [num_axes] */
  int64_t num_axes;
  int64_t rank;
  int64_t num_ranks;
  int64_t *index_fault; /* [2]: what a kernel found beyond its table: the rows
                         * of the table (0: nothing), and the index */
} cleave_ctx;

/* Computes rows [begin, end). args[i] is the address of the launch's i-th
 * buffer. Called from several threads at once on disjoint rows. */
typedef void (*cleave_kernel)(const cleave_ctx *ctx, void *const *args,
                              int64_t begin, int64_t end);

/* --- Programs ------------------------------------------------------------- */

typedef struct cleave_program cleave_program; /* opaque, immutable once used */

/* Reads DIR/program.bin and, if the program has kernels, DIR/kernels.so, or
 * what DIR has for a CUDA device (docs/gpu.md). The caller frees *out with
 * cleave_program_free; *out is NULL on failure. */
cleave_status cleave_program_load(const char *dir, cleave_program **out);

/* The same from memory. Kernels come from the shared library `kernels_path`,
 * or, where it is NULL, from cleave_program_add_kernel; those for a CUDA device
 * come from the files of the folder `kernels_path`. */
cleave_status cleave_program_from_memory(const void *bytes, size_t size,
                                         const char *kernels_path,
                                         cleave_program **out);

/* Binds a symbol (kernels linked into the executable). Wins over the library.
 * Only before the first session. */
cleave_status cleave_program_add_kernel(cleave_program *program,
                                        const char *symbol,
                                        cleave_kernel kernel);

/* NULL is fine. Sessions of the program must have been freed. */
void cleave_program_free(cleave_program *program);

int32_t cleave_program_num_ranks(const cleave_program *program);
int32_t cleave_program_num_axes(const cleave_program *program);
const char *cleave_program_axis_name(const cleave_program *program,
                                     int32_t axis); /* NULL: out of range */
int64_t cleave_program_axis_size(const cleave_program *program, int32_t axis);
int32_t cleave_program_has_action(const cleave_program *program,
                                  const char *name);
/* Value of a metadata key, NULL if absent. Lives as long as the program. */
const char *cleave_program_meta(const cleave_program *program, const char *key);

/* Element types; the values are those of cleave::program::DType. */
typedef enum cleave_dtype {
  CLEAVE_F32 = 0,
  CLEAVE_F64 = 1,
  CLEAVE_BF16 = 2,
  CLEAVE_I64 = 3,
  CLEAVE_I32 = 4,
  CLEAVE_I8 = 5,
  CLEAVE_U8 = 6
} cleave_dtype;

size_t cleave_dtype_size(cleave_dtype dtype);

/* A named buffer; pointers live as long as the program. In a pipeline only
 * some classes of ranks (stages) hold it, each cut in its own way. */
typedef struct cleave_buffer_info {
  const char *name;
  const char *onnx_name; /* "" if none */
  const char *tie;       /* "" or the buffer whose storage it shares */
  const char *role;      /* parameter, state, gradient, input, loss, lr, ... */
  const char *of;        /* parameter that state or a gradient belongs to */
  cleave_dtype dtype;
  int32_t rank;                /* of global_shape */
  const int64_t *global_shape; /* as in files; NULL if rank 0 */
  int64_t global_bytes;        /* of the whole array, in `dtype` */
  int64_t local_bytes;         /* of the largest tile, padding included */
  int64_t owners; /* ranks that hold the same element: 1 = nothing replicated */
} cleave_buffer_info;

int32_t cleave_program_num_buffers(const cleave_program *program);
cleave_status cleave_program_buffer(const cleave_program *program,
                                    int32_t index, cleave_buffer_info *out);
/* Index of the buffer, or -1. */
int32_t cleave_program_find_buffer(const cleave_program *program,
                                   const char *name);

/* --- Sessions: memory and threads of the ranks ---------------------------- */

typedef struct cleave_session cleave_session; /* opaque */

typedef struct cleave_session_options {
  int32_t version;          /* CLEAVE_RUNTIME_VERSION */
  int32_t threads_per_rank; /* 0: cores / ranks, at least 1 */
  double watchdog_seconds;  /* a collective that waits longer fails, and so does
                             * a rank that goes on for longer, computing or
                             * silent, after another is done with the action;
                             * 0: 300. A stage that takes longer needs more */
  int32_t poison; /* 1: NaNs fill memory that is not live, guard zones are
                   * checked; slow, for tests */
  const char
      *transport; /* NULL or "local": ranks are threads of this process;
                   * "mpi": each is a process that a launcher started;
                   * of CUDA devices "nccl": threads that have a device
                   * each; "auto": "nccl" where they have, else "local" */
  /* Only "local": a thread of each rank carries out collectives that a Wait
   * ends, while the rank computes. 1: yes, -1: no, 0: where it pays, which is
   * where cores are free or links are slow. */
  int32_t comm_thread;
  /* Only "local": messages take at least the latency, and bytes / bandwidth
   * more, one after the other, as if ranks were connected by links, which are
   * busy with what was started before. 0: no latency, no limit. */
  double link_latency;          /* seconds */
  double link_bytes_per_second; /* that a rank receives */
} cleave_session_options;

/* Allocates the arenas of all ranks (zeroed), starts one thread per rank and
 * prepares every command. The caller frees *out with cleave_session_free. With
 * transport "mpi" only process 0 calls it; see cleave_serve. */
cleave_status cleave_session_create(cleave_program *program,
                                    const cleave_session_options *options,
                                    cleave_session **out);
void cleave_session_free(cleave_session *session); /* NULL is fine */

/* A rank's tile of a named buffer, of info.local_bytes unless classes of ranks
 * differ. Stays valid; do not touch it while an action runs. On a device it
 * holds what was scattered before this call: what is scattered later may still
 * be on its way, so ask again. Only of a rank of this process, and of a class
 * that holds the buffer. */
cleave_status cleave_session_buffer(cleave_session *session, int32_t rank,
                                    const char *name, void **out);

/* Cuts a whole array (global_shape, row-major, `dtype`) into the ranks'
 * tiles. Padding becomes zero. f32, f64 and bf16 are converted to the buffer's
 * type; other types must be equal. `count` is the number of elements given
 * (checked). A tied buffer writes its shared storage. A partial buffer gets
 * the value on the first member and the reduction's identity elsewhere. */
cleave_status cleave_session_scatter(cleave_session *session, const char *name,
                                     cleave_dtype dtype, const void *data,
                                     int64_t count);

/* The same, but padding becomes `*padding`, one element of the buffer's type.
 */
cleave_status cleave_session_scatter_padded(cleave_session *session,
                                            const char *name,
                                            cleave_dtype dtype,
                                            const void *data, int64_t count,
                                            const void *padding);

/* Fills every rank's tile with zeros, padding included. */
cleave_status cleave_session_zero(cleave_session *session, const char *name);

typedef struct cleave_gather_report {
  int32_t replicas;        /* ranks that hold each element */
  int32_t identical;       /* 1: all replicas are equal, bit for bit; padding
                            * may differ */
  double max_difference;   /* over replicas, elementwise; NaN if one is NaN
                            * where the other is not */
  int32_t rank_a, rank_b;  /* first differing pair, -1 if none */
  int64_t element;         /* its element within rank_b's tile, -1 if none */
  int64_t nonzero_padding; /* elements past the end of the array, not 0 */
} cleave_gather_report;

/* The inverse: tiles to a whole array; partial values are reduced, within a
 * class of ranks. `report` may be NULL; replicas are compared where it is not,
 * those of different classes included. */
cleave_status cleave_session_gather(cleave_session *session, const char *name,
                                    cleave_dtype dtype, void *data,
                                    int64_t count,
                                    cleave_gather_report *report);

/* Sets every rank's copy of a rank-0 input (step, lr, seed, microbatch, ...),
 * converted to the buffer's type. */
cleave_status cleave_session_set_scalar(cleave_session *session,
                                        const char *name, double value);
cleave_status cleave_session_set_integer(cleave_session *session,
                                         const char *name, int64_t value);

/* Runs an action on all ranks whose class has it; returns when all have
 * finished. Actions that are only called by others cannot be run. After
 * CLEAVE_RANK_FAILED or CLEAVE_TIMEOUT buffers are undefined and the session
 * refuses to run again. */
cleave_status cleave_session_run(cleave_session *session, const char *action);

/* What went wrong in the last run; strings live until the next call that
 * changes the session. */
typedef struct cleave_failure {
  cleave_status status; /* CLEAVE_OK: nothing */
  int32_t rank;         /* that failed; -1 if none is to blame */
  const char *action;
  int32_t command;    /* index in the action's list */
  const char *source; /* the command's source, e.g. an ONNX node */
  const char *message;
} cleave_failure;
void cleave_session_failure(const cleave_session *session, cleave_failure *out);

/* --- Counters ------------------------------------------------------------- */

/* Bytes that one rank moved for one purpose since the last reset. Counted in
 * the copy loops: what a rank reads from memory that another rank owns is
 * received by the reader and sent by the owner. */
typedef struct cleave_traffic {
  const char *purpose;
  int64_t sent_bytes;
  int64_t received_bytes;
  int64_t calls; /* collectives of this purpose that the rank took part in */
} cleave_traffic;

int32_t cleave_session_num_purposes(const cleave_session *session);
cleave_status cleave_session_traffic(const cleave_session *session,
                                     int32_t rank, int32_t purpose,
                                     cleave_traffic *out);
/* Floating-point operations of attention that one rank has executed since the
 * last reset: those of the blocks of scores that it computed, multiply-adds
 * counted as two. Blocks in which no query sees a key are skipped. */
cleave_status cleave_session_attention_flops(const cleave_session *session,
                                             int32_t rank, int64_t *out);

void cleave_session_reset_counters(cleave_session *session);

typedef struct cleave_memory {
  int64_t arena_bytes;     /* sum over arenas, as planned */
  int64_t touched_bytes;   /* sum of the highest touched byte per arena; only
                            * measured with `poison`, else -1 */
  int64_t scratch_bytes;   /* beside the arenas: their rounding to pages, and
                            * the messages of a transport */
  int64_t unplanned_bytes; /* library workspace beyond the planned one */
  int64_t pool_bytes;      /* process-wide: recycled library allocations */
} cleave_memory;
cleave_status cleave_session_memory(const cleave_session *session, int32_t rank,
                                    cleave_memory *out);

/* --- Traces ----------------------------------------------------------------
 */

#define CLEAVE_STREAM_COMPUTE 0
#define CLEAVE_STREAM_TRANSFERS 1 /* collectives, their starts and waits */

/* One command of an action that cleave_session_run ran, on one rank; what a
 * call does is one event. Strings live as long as the session. */
typedef struct cleave_trace_event {
  const char *name; /* the label of a call ("0F3"), else the command's source */
  const char *kind; /* call, gemm, send_recv, wait, ... */
  int64_t begin_ns, end_ns; /* one clock for all ranks */
  int32_t stream;
  /* Where the event starts to send a message or ends to receive one: the ranks
   * that send and receive it, and its number among what was recorded between
   * the two; the same at both ends. Elsewhere `from` is -1. */
  int32_t from, to;
  int64_t message;
  const char *kernel; /* the symbol of a launched kernel, else "" */
  int64_t bytes;      /* of its operands and results, each once; 0: not known */
  int64_t flops;
} cleave_trace_event;

/* Records the actions that are run from now on, or stops to. */
cleave_status cleave_session_trace(cleave_session *session, int32_t enabled);

/* Moves up to `capacity` events of a rank to `out`, oldest first; *count is how
 * many. Call it until it is 0. */
cleave_status cleave_session_trace_read(cleave_session *session, int32_t rank,
                                        cleave_trace_event *out,
                                        int64_t capacity, int64_t *count);

/* --- Several processes ----------------------------------------------------
 * Under a launcher (mpirun, srun, torchrun) every process runs the same
 * executable. Process 0 goes its way: its sessions with transport "mpi" or
 * "nccl" reach the ranks in the other processes. Those call cleave_serve()
 * first thing in main() and return what it returns; process 0 returns
 * cleave_finish(code). */

/* 1 in a process that is to serve. */
int32_t cleave_is_worker(void);
/* In process 0, first thing: under a launcher without MPI the others may call
 * from now on, and know that it lives while it gets ready. Else does nothing.
 */
cleave_status cleave_await_workers(void);
/* Serves until process 0 finishes or is gone; returns the exit code. */
int32_t cleave_serve(void);
/* Ends the workers with the exit code, which it returns. Where a run was lost
 * it ends this process at once. Does nothing without workers. */
int32_t cleave_finish(int32_t code);

/* --- Tests and start-up --------------------------------------------------- */

/* Makes `rank` fail just before command `command` of the `run`-th call of
 * cleave_session_run from now on (0: the next one). With `hang` the rank goes
 * silent instead, which the watchdog has to find. */
cleave_status cleave_session_inject_failure(cleave_session *session,
                                            int32_t rank, int64_t run,
                                            int32_t command, int32_t hang);

/* Calls of malloc and its kin so far in an executable that links
 * cleaveStepPool, less those that recycling served; otherwise 0. */
int64_t cleave_allocation_count(void);

/* To be called first in main(). Threads that spin for long while waiting ruin
 * the run when ranks * threads exceed the cores, or when others use them too;
 * libgomp reads GOMP_SPINCOUNT while it is loaded, so this sets it and
 * re-executes the program once. Returns if GOMP_SPINCOUNT or OMP_WAIT_POLICY is
 * set, or if it could not be done (only slower, then). */
void cleave_prepare_process(int32_t ranks, int32_t threads_per_rank,
                            char **argv);

#ifdef __cplusplus
}
#endif

#endif /* CLEAVE_RUNTIME_H */
