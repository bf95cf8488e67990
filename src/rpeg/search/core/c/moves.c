/* Random changes of a state. The numbers are the same on every machine. */
#include "core.h"

#include <string.h>

static uint64_t next(Random *r)
{
    *r ^= *r >> 12, *r ^= *r << 25, *r ^= *r >> 27;
    return *r * 2685821657736338717ull;
}

num below(Random *r, num bound) { return (num)((next(r) >> 33) % (uint64_t)bound); }

double uniform(Random *r) { return ((double)(next(r) >> 11) + 0.5) / 9007199254740992.0; }

void copy_state(const State *from, State *to)
{
    size_t islands = (size_t)from->islands * sizeof(num), stages = (size_t)from->stages * sizeof(num);
    memcpy(to->size, from->size, islands), memcpy(to->kind, from->kind, islands);
    memcpy(to->mask, from->mask, stages), memcpy(to->option, from->option, stages);
    memcpy(to->offload, from->offload, stages), memcpy(to->shift, from->shift, stages);
}

static int has(const State *t, int stage, int island) { return t->mask[stage] >> island & 1; }

/* One that has devices. */
static int a_stage(const Shape *shape, Random *r)
{
    int stage;
    do stage = (int)below(r, shape->stages);
    while (shape->kind[stage] == HOST);
    return stage;
}

/* One that has devices. */
static int an_island(const State *t, Random *r)
{
    int island = (int)below(r, t->islands);
    while (t->size[island] == 0) island = (int)((island + 1) % t->islands);
    return island;
}

/* One without devices; -1 where all have some. */
static int a_free_island(const State *t)
{
    for (int i = 0; i < t->islands; i++)
        if (t->size[i] == 0) return i;
    return -1;
}

static int kind_of(const State *t, num mask)
{
    for (int i = 0; i < t->islands; i++)
        if (mask >> i & 1 && t->size[i] > 0) return (int)t->kind[i];
    return -1;
}

/* Moves devices from an island to another of its kind. */
static int resize(State *t, Random *r)
{
    int giver = an_island(t, r), taker = an_island(t, r);
    if (giver == taker || t->kind[giver] != t->kind[taker]) return 0;
    num amount = below(r, 2) ? 1 : 1 + below(r, t->size[giver]);
    t->size[giver] -= amount, t->size[taker] += amount;
    return 1;
}

/* Cuts an island in two; each of its stages then has both, or one of them. */
static int split(const Shape *shape, State *t, Random *r)
{
    int giver = an_island(t, r), taker = a_free_island(t);
    if (taker < 0 || t->size[giver] < 2) return 0;
    num amount = below(r, 2) ? t->size[giver] / 2 : 1 + below(r, t->size[giver] - 1);
    t->size[giver] -= amount, t->size[taker] = amount, t->kind[taker] = t->kind[giver];
    for (int s = 0; s < shape->stages; s++) {
        t->mask[s] &= ~((num)1 << taker);
        if (!has(t, s, giver)) continue;
        num how = below(r, 3);
        if (how != 1) t->mask[s] |= (num)1 << taker;
        if (how == 2) t->mask[s] &= ~((num)1 << giver);
    }
    return 1;
}

/* Two islands of a kind become one, which all their stages have. */
static int merge(const Shape *shape, State *t, Random *r)
{
    int giver = an_island(t, r), taker = an_island(t, r);
    if (giver == taker || t->kind[giver] != t->kind[taker]) return 0;
    t->size[taker] += t->size[giver], t->size[giver] = 0;
    for (int s = 0; s < shape->stages; s++)
        if (has(t, s, giver)) t->mask[s] = (t->mask[s] & ~((num)1 << giver)) | (num)1 << taker;
    return 1;
}

/* Two islands of a kind change sizes; their neighbours in the row change with them. */
static int exchange(State *t, Random *r)
{
    int one = an_island(t, r), other = an_island(t, r);
    if (one == other || t->kind[one] != t->kind[other] || t->size[one] == t->size[other]) return 0;
    num size = t->size[one];
    t->size[one] = t->size[other], t->size[other] = size;
    return 1;
}

/* A stage gets an island more, or one less, or another one instead. */
static int toggle(const Shape *shape, State *t, Random *r)
{
    int stage = a_stage(shape, r), island = an_island(t, r);
    num bit = (num)1 << island;
    if (t->kind[island] != kind_of(t, t->mask[stage]) || below(r, 3) == 0) {
        if (t->mask[stage] == bit) return 0;
        t->mask[stage] = bit;
        return 1;
    }
    if (kind_of(t, t->mask[stage] ^ bit) < 0) return 0;
    t->mask[stage] ^= bit;
    return 1;
}

/* A stage goes where another is, or they change places. */
static int follow(const Shape *shape, State *t, Random *r)
{
    int stage = a_stage(shape, r), other = a_stage(shape, r);
    if (t->mask[stage] == t->mask[other]) return 0;
    num mask = t->mask[stage];
    t->mask[stage] = t->mask[other];
    if (below(r, 3) == 0) t->mask[other] = mask;
    return 1;
}

/* All stages of one block go to another. */
static int march(const Shape *shape, State *t, Random *r)
{
    num from = t->mask[a_stage(shape, r)], to = t->mask[a_stage(shape, r)];
    if (from == to) return 0;
    for (int s = 0; s < shape->stages; s++)
        if (shape->kind[s] != HOST && t->mask[s] == from && below(r, 4)) t->mask[s] = to;
    return 1;
}

/* Of a stage, an option with a layout: taken where its row is known and there is one. */
static void take_layout(const Shape *shape, const Rows *rows, const Site *site, State *t, int stage, num layout)
{
    Blocks b;
    int kind, align;
    num units;
    blocks_of(t, &b, shape);
    if (!block(site, &b, b.used[stage], &kind, &units, &align)) return;
    const num *where = options_of(shape, rows, stage, kind, units, align);
    for (num i = 0; i < where[1] && where[0] >= 0; i++)
        if (rows->layout[where[0] + i] == layout) {
            t->option[stage] = i;
            return;
        }
}

/* The number of the layout that a stage has; -1 where it is not known. */
static num layout_of(const Shape *shape, const Rows *rows, const Site *site, const State *t, int stage)
{
    Blocks b;
    int kind, align;
    num units;
    blocks_of(t, &b, shape);
    if (!block(site, &b, b.used[stage], &kind, &units, &align)) return -1;
    const num *where = options_of(shape, rows, stage, kind, units, align);
    return where[0] < 0 || where[1] == 0 ? -1 : rows->layout[where[0] + t->option[stage] % where[1]];
}

/* A consumer of weights goes to its trainer's devices, or takes its layout there too, and so uses its weights. */
static int with_trainer(const Shape *shape, const Rows *rows, const Site *site, State *t, Random *r)
{
    if (shape->edge_count == 0) return 0;
    const num *edge = shape->edges + below(r, shape->edge_count) * E_WIDTH;
    int trainer = (int)edge[E_TRAINER], consumer = (int)edge[E_CONSUMER];
    num layout = layout_of(shape, rows, site, t, trainer);
    if (t->mask[trainer] == t->mask[consumer] && layout == layout_of(shape, rows, site, t, consumer)) return 0;
    t->mask[consumer] = t->mask[trainer];
    if (layout >= 0) take_layout(shape, rows, site, t, consumer, layout);
    return 1;
}

/* Another rest for a stage's weights, or for all that share its devices. */
static int reoffload(const Shape *shape, State *t, Random *r)
{
    int stage = a_stage(shape, r), all = below(r, 8) == 0;
    num how = below(r, 3);
    for (int s = 0; s < shape->stages; s++) {
        if (shape->kind[s] == HOST || !(s == stage || (all && t->mask[s] == t->mask[stage]))) continue;
        num before = t->offload[s];
        if (all) t->offload[s] = shape->kind[s] == TRAIN ? how : how ? 2 : 0;
        else t->offload[s] = shape->kind[s] == TRAIN ? (before + 1 + how % 2) % 3 : 2 - before;
    }
    return 1;
}

/* A stage and all that follows it within a step a period later, or it and all before it a period earlier. Shifts reach as
   far as weights may be old; beyond that they only turn the period round. */
static int reshift(const Shape *shape, State *t, Random *r)
{
    num most = 0, least = INT64_MAX, greatest = 0;
    for (int e = 0; e < shape->edge_count; e++) {
        num delay = shape->edges[e * E_WIDTH + E_DELAY] - 1;
        if (delay > most) most = delay;
    }
    if (most == 0) return 0;
    int later = below(r, 2) == 0;
    t->shift[below(r, shape->stages)] += later ? 1 : -1;
    for (int round = 0; round < shape->stages; round++)
        for (int i = 0; i < shape->data_count; i++) {
            num a = shape->data[2 * i], b = shape->data[2 * i + 1];
            if (t->shift[a] <= t->shift[b]) continue;
            if (later) t->shift[b] = t->shift[a];
            else t->shift[a] = t->shift[b];
        }
    for (int s = 0; s < shape->stages; s++)
        if (t->shift[s] < least) least = t->shift[s];
    for (int s = 0; s < shape->stages; s++) {
        t->shift[s] -= least;
        if (t->shift[s] > greatest) greatest = t->shift[s];
    }
    return greatest <= most;
}

/* Stages whose devices have changed take the first of their options. */
static void fastest(const Shape *shape, const State *before, State *t)
{
    num changed = 0;
    for (int i = 0; i < t->islands; i++)
        if (before->size[i] != t->size[i]) changed |= (num)1 << i;
    for (int s = 0; s < shape->stages; s++)
        if (before->mask[s] != t->mask[s] || t->mask[s] & changed) t->option[s] = 0;
}

/* Changes a copy of `before`; false where nothing came of it. placed: blocks stay as they are. */
int move(const Shape *shape, const Rows *rows, const Site *site, const State *before, State *t, Random *r, int placed)
{
    num which = below(r, placed ? 10 : 26);
    int done = 0;
    if (which < 5) {
        t->option[a_stage(shape, r)] = which ? below(r, 1 << 20) : 0;
        return 1;
    }
    if (which < 8) return reoffload(shape, t, r);
    if (which < 10) return reshift(shape, t, r);
    if (which < 14) done = resize(t, r);
    else if (which < 16) done = split(shape, t, r);
    else if (which < 17) done = merge(shape, t, r);
    else if (which < 18) done = exchange(t, r);
    else if (which < 21) done = toggle(shape, t, r);
    else if (which < 23) done = follow(shape, t, r);
    else if (which < 24) done = march(shape, t, r);
    else return with_trainer(shape, rows, site, t, r);
    if (done && below(r, 4)) fastest(shape, before, t);
    return done;
}

int rpeg_move(const Shape *shape, const Rows *rows, const Site *site, const State *before, State *t, Random *r, int placed)
{
    copy_state(before, t);
    return move(shape, rows, site, before, t, r, placed);
}
