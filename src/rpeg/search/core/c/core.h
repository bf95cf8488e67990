/* The arrays that the search works on, as rpeg.search.core.layout describes them; all indices are 64-bit, in C order. */
#ifndef RPEG_CORE_H
#define RPEG_CORE_H

#include <stdint.h>

typedef int64_t num;

enum { HOST, GENERATE, INFERENCE, TRAIN };                 /* kinds of stages */
enum { RUN, TRANSFER, RELOAD, OFFLOAD };                   /* kinds of items */
enum { OK, INVALID, MISSING_OPTIONS, MISSING_LEVEL, MISSING_TRANSFER };
enum { WEIGHTS, OPTIMIZER, CACHE };                        /* what rests on a device */
enum { SLOTS = 4, HELD = 8, LEVELS = 64, PER_OCTAVE = 2, MOST_STAGES = 24, MOST_ISLANDS = 48, MOST_USES = MOST_STAGES * SLOTS };
enum { NONE = -1, OWN = -2 };                              /* what feeds a model: nothing, the stage itself */
enum { E_TRAINER, E_CONSUMER, E_DELAY, E_CLASS, E_PLACE, E_MODEL, E_WIDTH };

typedef struct {
    num stages, arc_count, edge_count, base_count, data_count, items, most_arcs;
    const num *kind, *first, *parts, *arcs, *model, *feed, *edges, *rests, *profile, *bases, *data;
} Shape;

typedef struct {
    num kinds, most_units, aligns, hash_size;
    const num *where, *layout, *holds, *core, *levels, *moved;
    const double *least, *work, *held, *host, *engine, *seconds;
} Rows;

typedef struct {
    num kinds, draws;
    double dispatch;
    const double *capacity, *share, *host;
    const num *units, *unit, *width;
} Site;

typedef struct {
    num islands, stages;
    num *size, *kind, *mask, *option, *offload, *shift;
} State;

/* A state with the islands that have devices in a row: what evaluation needs of its blocks. */
typedef struct {
    int count;                                             /* islands with devices; the host's lane comes after them */
    int kind[MOST_ISLANDS];
    num size[MOST_ISLANDS], start[MOST_ISLANDS];           /* units; units of its kind before it */
    uint64_t used[MOST_STAGES];                            /* bits of the islands of each stage */
} Blocks;

typedef struct {
    int stage, tenant, kind, gone;                         /* gone: what of its state is offloaded (0, 1, 2) */
    double weights, more, peak, process, host[4];
} Use;

typedef struct {
    int count;
    int name[3 * MOST_USES];
    double bytes[3 * MOST_USES];
} Tally;

/* Room to work in, for one chain, and what the last evaluation found. */
typedef struct {
    Blocks blocks;
    int row[MOST_STAGES], trained[MOST_USES], tenant[MOST_USES], gone[MOST_USES];
    int copy[64], node[64];                                /* of each weights edge: the first that its copy serves; item */
    int away[MOST_STAGES];
    uint64_t users[MOST_STAGES];                           /* of the rest of each stage, the stages that use it */
    double cache[MOST_STAGES * MOST_ISLANDS], least[MOST_STAGES];
    Use uses[MOST_USES];
    int use_count;
    Tally tally;
    int items, arcs, lanes;
    int *stage, *kind, *shift;                             /* of items */
    uint64_t *mask;                                        /* bits of the lanes that an item holds */
    double *duration, *mean, *offset, *offset_mean;        /* (draws, items), (items), (draws, bases), (bases) */
    int *src, *dst, *key, *height;                         /* of arcs; key: base part, -1 for the source's end */
    double *weight;
    int *head, *out, *into_head, *into;                    /* arcs by source and by destination */
    int *order, *sequence, *waiting, *left, *beside, *stack, *policy, *seen, *path;
    double *rank, *floor, *alone, *ready, *known, *ratio, *value;
    uint64_t *there;
    num miss[8];
    void *arena;
} Work;

static inline int lowest(uint64_t mask) { return __builtin_ctzll(mask); }

/* blocks.c */
void blocks_of(const State *, Blocks *, const Shape *);
int block(const Site *, const Blocks *, uint64_t used, int *kind, num *units, int *align);
const num *options_of(const Shape *, const Rows *, int stage, int kind, num units, int align);
int choose(const Shape *, const Rows *, const Site *, const State *, Work *, double beyond, double asking, double *least);
void join(const Shape *, const Rows *, Work *);

/* memory.c */
void away(const Shape *, const State *, Work *);
void gather(const Shape *, const Rows *, Work *);
void caches(const Shape *, const Rows *, const Site *, Work *);
double device_short(const Shape *, const Site *, Work *);
double host_short(const Site *, Work *);

/* order.c */
void index_arcs(int items, int arcs, const int *ends, int *head, int *by);
int order_lanes(Work *);

/* ratio.c */
double cycle_ratio(Work *);

/* evaluate.c */
int step_seconds(const Shape *, const Rows *, const Site *, const State *, Work *, double beyond, double asking, double *seconds,
                 double *shortage);

/* moves.c */
typedef uint64_t Random;                                   /* never 0 */
num below(Random *, num bound);
double uniform(Random *);
void copy_state(const State *from, State *to);
int move(const Shape *, const Rows *, const Site *, const State *before, State *, Random *, int placed);

#endif
