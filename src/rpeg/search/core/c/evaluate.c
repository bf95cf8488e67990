/* The step time of a state: arrays in, seconds out.

   Lane orders by upward rank of the mean times, then for each draw the maximum cycle ratio of the event graph with those
   orders. Equal to rpeg.sim's on the plan that the state stands for, at the times of the tables. */
#include "core.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double NEVER = 1e300;

static int add_item(Work *w, int kind, int stage, uint64_t mask, num shift)
{
    int item = w->items++;
    w->kind[item] = kind, w->stage[item] = stage, w->mask[item] = mask, w->shift[item] = (int)shift;
    return item;
}

/* The level of a cache, in steps of a quarter octave above the longest sequence, rounded down. */
static int level_of(const Rows *rows, int row, double cache)
{
    double ratio = cache / rows->engine[(num)row * 6 + 2];
    int level = (int)floor(PER_OCTAVE * log2(ratio > 1.0 ? ratio : 1.0) + 1e-9);
    return level < 0 ? 0 : level > LEVELS - 1 ? LEVELS - 1 : level;
}

static int generating(const Shape *shape, const Rows *rows, const Site *site, Work *w, int s)
{
    int row = w->row[s], level = level_of(rows, row, w->least[s]), parts = (int)shape->parts[s];
    num at = rows->levels[(num)row * LEVELS + level];
    if (at < 0) {
        w->miss[0] = MISSING_LEVEL, w->miss[1] = row, w->miss[2] = level, w->miss[3] = s;
        return MISSING_LEVEL;
    }
    num draws = site->draws, place = parts;
    for (int d = 0; d < draws; d++)
        for (int p = 0; p < parts; p++)
            w->duration[d * shape->items + shape->first[s] + p] = site->dispatch + rows->seconds[at + p * draws + d];
    for (int b = 0; b < shape->base_count; b++) {
        if (shape->bases[b] != s) continue;
        for (int d = 0; d < draws; d++)
            w->offset[d * shape->base_count + b] = site->dispatch + rows->seconds[at + place * draws + d];
        place++;
    }
    return OK;
}

/* Stage, lanes, shift and seconds of every run item. */
static int runs(const Shape *shape, const Rows *rows, const Site *site, const State *state, Work *w)
{
    w->items = 0;
    for (int s = 0; s < shape->stages; s++) {
        uint64_t mask = shape->kind[s] == HOST ? 1ull << w->blocks.count : w->blocks.used[s];
        int parts = (int)shape->parts[s], first = (int)shape->first[s];
        for (int p = 0; p < parts; p++) add_item(w, RUN, s, mask, state->shift[s]);
        if (shape->kind[s] == GENERATE) {
            int code = generating(shape, rows, site, w, s);
            if (code != OK) return code;
            continue;
        }
        for (int d = 0; d < site->draws; d++)
            for (int p = 0; p < parts; p++) w->duration[d * shape->items + first + p] = site->dispatch;
        for (int slot = 0; slot < SLOTS; slot++) {
            num at = rows->core[((num)w->row[s] * SLOTS + slot) * 2 + w->trained[s * SLOTS + slot]];
            if (at < 0) continue;
            for (int d = 0; d < site->draws; d++)
                for (int p = 0; p < parts; p++)
                    w->duration[d * shape->items + first + p] += rows->seconds[at + p * site->draws + d];
        }
    }
    return OK;
}

static void lasts(const Shape *shape, const Site *site, Work *w, int item, double seconds)
{
    for (int d = 0; d < site->draws; d++) w->duration[d * shape->items + item] = seconds;
}

/* 0: blocks apart; 1: they share devices and begin at the same; 2: they share devices. */
static int relation(uint64_t one, uint64_t other)
{
    if (!(one & other)) return 0;
    return (one & -one) == (other & -other) ? 1 : 2;
}

static num find(const Rows *rows, num key)
{
    num place = (num)(((uint64_t)key * 40503u + ((uint64_t)key >> 17)) % (uint64_t)rows->hash_size);
    while (rows->moved[2 * place] != key && rows->moved[2 * place] != -1) place = (place + 1) % rows->hash_size;
    return place;
}

/* The items of the copies, and of each weights edge its item. */
static int transfers(const Shape *shape, const Rows *rows, const Site *site, const State *state, Work *w)
{
    for (int e = 0; e < shape->edge_count; e++) {
        const num *edge = shape->edges + e * E_WIDTH;
        w->node[e] = NONE;
        if (w->copy[e] != e) continue;
        int trainer = (int)edge[E_TRAINER], consumer = (int)edge[E_CONSUMER];
        int how = relation(w->blocks.used[trainer], w->blocks.used[consumer]);
        num key = ((rows->holds[w->row[trainer]] << 20 | rows->holds[w->row[consumer]]) << 2 | how) << 6 | edge[E_MODEL];
        num place = find(rows, key);
        if (rows->moved[2 * place] == -1) {
            num asked[7] = {MISSING_TRANSFER, w->row[trainer], w->row[consumer], how, trainer, consumer, edge[E_MODEL]};
            memcpy(w->miss, asked, sizeof asked);
            return MISSING_TRANSFER;
        }
        num shift = (num)1 << 30;
        for (int o = 0; o < shape->edge_count; o++) {
            num of = state->shift[shape->edges[o * E_WIDTH + E_CONSUMER]];
            if (w->copy[o] == e && of < shift) shift = of;
        }
        w->node[e] = add_item(w, TRANSFER, e, w->blocks.used[consumer], shift);
        lasts(shape, site, w, w->node[e], site->dispatch + rows->seconds[rows->moved[2 * place + 1]]);
    }
    return OK;
}

/* Seconds in which what a stage has offloaded comes to its devices, or goes. */
static double moving(const Shape *shape, const Rows *rows, const Work *w, int s, int coming)
{
    int row = w->row[s], kept = shape->kind[s] == TRAIN;
    double sum = 0.0;
    if (shape->kind[s] == GENERATE) return coming && w->away[s] ? rows->engine[(num)row * 6 + 4] : 0.0;
    for (int slot = 0; slot < SLOTS; slot++) kept |= shape->feed[s * SLOTS + slot] >= 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        int i = s * SLOTS + slot, gone = w->gone[i];
        if (w->tenant[i] < 0 || gone == 0) continue;
        const double *held = rows->held + (((num)row * SLOTS + slot) * 2 + w->trained[i]) * HELD;
        if (shape->kind[s] == TRAIN) sum += held[gone == 2 ? 5 : 4];
        else if (gone == 2 && (coming || kept)) sum += held[3];
    }
    return sum;
}

/* The reloads, then the offloads. */
static void rests(const Shape *shape, const Rows *rows, const Site *site, const State *state, Work *w)
{
    for (int coming = 1; coming >= 0; coming--)
        for (int s = 0; s < shape->stages; s++) {
            if (!w->users[s]) continue;
            num shift = -1;
            for (uint64_t rest = w->users[s]; rest; rest &= rest - 1) {
                num of = state->shift[lowest(rest)];
                if (shift < 0 || (coming ? of < shift : of > shift)) shift = of;
            }
            int item = add_item(w, coming ? RELOAD : OFFLOAD, s, w->blocks.used[s], shift);
            lasts(shape, site, w, item, site->dispatch + moving(shape, rows, w, s, coming));
        }
}

/* One more arc. False where its source would run in a later period. */
static int add_arc(Work *w, int src, int dst, int key, int delay)
{
    int height = delay + w->shift[dst] - w->shift[src], a = w->arcs;
    if (height < 0) return 0;
    w->src[a] = src, w->dst[a] = dst, w->key[a] = key, w->height[a] = height;
    w->arcs++;
    return 1;
}

/* All arcs but those of lanes. False where the shifts allow none. */
static int arcs_of(const Shape *shape, Work *w)
{
    w->arcs = 0;
    int legal = 1;
    for (int i = 0; i < shape->arc_count; i++)
        legal &= add_arc(w, (int)shape->arcs[3 * i], (int)shape->arcs[3 * i + 1], (int)shape->arcs[3 * i + 2], 0);
    for (int s = 0; s < shape->stages; s++)
        if (shape->kind[s] == TRAIN)
            legal &= add_arc(w, (int)(shape->first[s] + shape->parts[s] - 1), (int)shape->first[s], -1, 1);
    for (int e = 0; e < shape->edge_count; e++) {
        const num *edge = shape->edges + e * E_WIDTH;
        int trainer = (int)edge[E_TRAINER], consumer = (int)edge[E_CONSUMER], delay = (int)edge[E_DELAY];
        int first = (int)shape->first[trainer], last = first + (int)shape->parts[trainer] - 1;
        int moved = w->copy[e] < 0 ? NONE : w->node[w->copy[e]];
        if (moved >= 0) legal &= add_arc(w, last, moved, -1, delay);
        for (int item = (int)shape->first[consumer]; item < shape->first[consumer] + shape->parts[consumer]; item++) {
            legal &= moved < 0 ? add_arc(w, last, item, -1, delay) : add_arc(w, moved, item, -1, 0);
            legal &= moved < 0 ? add_arc(w, item, first, -1, 0) : add_arc(w, item, moved, -1, 1);
        }
        if (!legal) return 0;
    }
    return legal;
}

/* Reload, then all that use what it brings, then offload, then the next reload. */
static int rest_arcs(const Shape *shape, Work *w)
{
    int legal = 1;
    for (int comes = 0; comes < w->items; comes++) {
        if (w->kind[comes] != RELOAD) continue;
        int stage = w->stage[comes], goes = comes;
        while (w->kind[goes] != OFFLOAD || w->stage[goes] != stage) goes++;
        for (uint64_t rest = w->users[stage]; rest; rest &= rest - 1) {
            int user = lowest(rest);
            for (int item = (int)shape->first[user]; item < shape->first[user] + shape->parts[user]; item++)
                legal &= add_arc(w, comes, item, -1, 0) & add_arc(w, item, goes, -1, 0);
        }
        for (int e = 0; e < shape->edge_count; e++)
            if (w->node[e] >= 0 && shape->edges[e * E_WIDTH + E_CONSUMER] == stage)
                legal &= add_arc(w, comes, w->node[e], -1, 0) & add_arc(w, w->node[e], goes, -1, 0);
        legal &= add_arc(w, goes, comes, -1, 1);
        if (!legal) return 0;
    }
    return legal;
}

/* The turns of every lane one after another, and from its last to the first of the next period; of lanes with the same
   items once. */
static void lane_arcs(Work *w)
{
    for (int lane = 0; lane < w->lanes; lane++) {
        int alike = 0, first = NONE, last = NONE;
        for (int other = 0; other < lane && !alike; other++) {
            alike = 1;
            for (int i = 0; i < w->items && alike; i++) alike = (w->mask[i] >> lane & 1) == (w->mask[i] >> other & 1);
        }
        if (alike) continue;
        for (int i = 0; i < w->items; i++) {
            int item = w->sequence[i], a = w->arcs;
            if (!(w->mask[item] >> lane & 1)) continue;
            if (last < 0) first = item;
            else w->src[a] = last, w->dst[a] = item, w->key[a] = -1, w->height[a] = 0, w->arcs++;
            last = item;
        }
        if (first >= 0) {
            int a = w->arcs++;
            w->src[a] = last, w->dst[a] = first, w->key[a] = -1, w->height[a] = 1;
        }
    }
}

/* Items in the order of their slots: offloads, reloads, runs, transfers, each by name. */
static void by_name(const Shape *shape, Work *w)
{
    int count = 0, kinds[] = {OFFLOAD, RELOAD};
    for (int k = 0; k < 2; k++)
        for (int place = 0; place < shape->stages; place++)
            for (int item = 0; item < w->items; item++)
                if (w->kind[item] == kinds[k] && w->stage[item] == shape->rests[place]) w->order[count++] = item;
    for (int item = 0; item < w->items; item++)
        if (w->kind[item] == RUN || w->kind[item] == TRANSFER) w->order[count++] = item;
}

/* Over the draws, as plans are ordered by. */
static void means(const Shape *shape, const Site *site, Work *w)
{
    for (int item = 0; item < w->items; item++) {
        double sum = 0.0;
        for (int d = 0; d < site->draws; d++) sum += w->duration[d * shape->items + item];
        w->mean[item] = sum / (double)site->draws;
    }
    for (int b = 0; b < shape->base_count; b++) {
        double sum = 0.0;
        for (int d = 0; d < site->draws; d++) sum += w->offset[d * shape->base_count + b];
        w->offset_mean[b] = sum / (double)site->draws;
    }
}

/* Mean seconds that the busiest lane works in a step: no order of it is faster. */
static double busy(const Work *w)
{
    double lanes[MOST_ISLANDS + 1] = {0.0}, most = 0.0;
    for (int item = 0; item < w->items; item++)
        for (uint64_t rest = w->mask[item]; rest; rest &= rest - 1) lanes[lowest(rest)] += w->mean[item];
    for (int lane = 0; lane < w->lanes; lane++)
        if (lanes[lane] > most) most = lanes[lane];
    return most;
}

/* OK, INVALID or what is missing; mean step seconds, and the share of memory that is missing.

   beyond: where a step surely takes longer, a lower bound beyond it stands for its seconds, and memory is not looked at.
   asking: rows that are missing are asked for where a step may take less; 0 for never. Else it is no plan. */
int step_seconds(const Shape *shape, const Rows *rows, const Site *site, const State *state, Work *w, double beyond, double asking,
                 double *seconds, double *shortage)
{
    *seconds = NEVER, *shortage = NEVER;
    blocks_of(state, &w->blocks, shape);
    w->lanes = w->blocks.count + 1;
    double least;
    int code = choose(shape, rows, site, state, w, beyond, asking, &least);
    if (code != OK) return code;
    if (least > beyond) {
        *seconds = least, *shortage = 0.0;
        return OK;
    }
    join(shape, rows, w);
    away(shape, state, w);
    gather(shape, rows, w);
    caches(shape, rows, site, w);
    if ((code = runs(shape, rows, site, state, w)) == OK) code = transfers(shape, rows, site, state, w);
    if (code != OK) return asking > 0.0 ? code : INVALID;
    rests(shape, rows, site, state, w);
    means(shape, site, w);
    if (beyond < NEVER) {
        double most = busy(w);
        if (most > beyond) {
            *seconds = most, *shortage = 0.0;
            return OK;
        }
    }
    if (!arcs_of(shape, w) || !rest_arcs(shape, w)) return INVALID;
    by_name(shape, w);
    if (!order_lanes(w)) return INVALID;
    lane_arcs(w);
    index_arcs(w->items, w->arcs, w->src, w->head, w->out);
    for (int i = 0; i < w->items; i++) w->policy[i] = w->out[w->head[i + 1] - 1];
    double sum = 0.0;
    for (int d = 0; d < site->draws; d++) {
        const double *duration = w->duration + d * shape->items, *offset = w->offset + d * shape->base_count;
        for (int a = 0; a < w->arcs; a++)
            w->weight[a] = w->key[a] < 0 ? duration[w->src[a]] : offset[w->key[a]];
        sum += cycle_ratio(w);
        if (sum > beyond * (double)site->draws) {
            *seconds = sum / (double)site->draws, *shortage = 0.0;
            return OK;
        }
    }
    *seconds = sum / (double)site->draws;
    *shortage = device_short(shape, site, w) + host_short(site, w);
    return OK;
}

/* One evaluation for Python: out is [seconds, share of memory that is missing]. */
int rpeg_step_seconds(const Shape *shape, const Rows *rows, const Site *site, const State *state, Work *w, double beyond,
                      double *out)
{
    return step_seconds(shape, rows, site, state, w, beyond, NEVER, &out[0], &out[1]);
}

/* The sum of the step seconds of these states, evaluated so many times each: to measure evaluations a second. */
double rpeg_repeated(const Shape *shape, const Rows *rows, const Site *site, const State *states, num count, Work *w, num times)
{
    double sum = 0.0, seconds, shortage;
    for (num t = 0; t < times; t++)
        for (num i = 0; i < count; i++) {
            step_seconds(shape, rows, site, &states[i], w, NEVER, NEVER, &seconds, &shortage);
            sum += seconds;
        }
    return sum;
}

/* Room for a structure's plans; NULL where it has more stages or edges than the search knows. */
Work *rpeg_work(const Shape *shape, num draws)
{
    num items = shape->items, arcs = shape->most_arcs, bases = shape->base_count + 1;
    if (shape->stages > MOST_STAGES || shape->edge_count > 64) return NULL;
    num doubles = items * draws + bases * draws + bases + arcs + 8 * items, ints = 6 * arcs + 16 * (items + 2);
    Work *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    char *at = w->arena = calloc(1, (size_t)(doubles * 8 + items * 16 + ints * 4));
    if (!at) {
        free(w);
        return NULL;
    }
#define TAKE(field, count) (w->field = (void *)at, at += (count) * sizeof *w->field)
    TAKE(duration, items * draws), TAKE(offset, bases * draws), TAKE(offset_mean, bases), TAKE(weight, arcs);
    TAKE(mean, items), TAKE(rank, items), TAKE(floor, items), TAKE(alone, items);
    TAKE(ready, items), TAKE(known, items), TAKE(ratio, items), TAKE(value, items);
    TAKE(mask, items), TAKE(there, items);
    TAKE(src, arcs), TAKE(dst, arcs), TAKE(key, arcs), TAKE(height, arcs), TAKE(out, arcs), TAKE(into, arcs);
    TAKE(stage, items), TAKE(kind, items), TAKE(shift, items), TAKE(head, items + 1), TAKE(into_head, items + 1);
    TAKE(order, items), TAKE(sequence, items), TAKE(waiting, items), TAKE(left, items), TAKE(beside, items);
    TAKE(stack, items), TAKE(policy, items), TAKE(seen, items), TAKE(path, items);
#undef TAKE
    return w;
}

void rpeg_work_free(Work *w)
{
    if (w) free(w->arena);
    free(w);
}

/* The items of the last evaluation, for those who compare it with a reference: their number; kinds, stages, and seconds at
   mean times and in each draw, of items and of base parts. */
typedef struct {
    num count, stride, bases;
    const int *kind, *stage;
    const double *mean, *duration, *offset_mean, *offset;
} Items;

void rpeg_items(const Shape *shape, const Work *w, Items *out)
{
    *out = (Items){w->items, shape->items, shape->base_count, w->kind, w->stage, w->mean, w->duration, w->offset_mean, w->offset};
}

/* What the last evaluation missed (8 numbers), and the row of each stage's option. */
const num *rpeg_missing(const Work *w) { return w->miss; }
const int *rpeg_rows(const Work *w) { return w->row; }
