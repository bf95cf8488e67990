/* Which devices a state gives each stage, and which option of its table that selects. */
#include "core.h"

void blocks_of(const State *state, Blocks *b, const Shape *shape)
{
    int place[MOST_ISLANDS];
    num start[MOST_ISLANDS] = {0};
    b->count = 0;
    for (int i = 0; i < state->islands; i++) {
        place[i] = -1;
        if (state->size[i] <= 0) continue;
        int kind = (int)state->kind[i];
        place[i] = b->count;
        b->kind[b->count] = kind;
        b->size[b->count] = state->size[i];
        b->start[b->count] = start[kind];
        start[kind] += state->size[i];
        b->count++;
    }
    for (int s = 0; s < shape->stages; s++) {
        b->used[s] = 0;
        if (shape->kind[s] == HOST) continue;
        for (int i = 0; i < state->islands; i++)
            if (place[i] >= 0 && state->mask[s] >> i & 1) b->used[s] |= 1ull << place[i];
    }
}

/* Kind, units and log2 of the alignment of a union of islands: tensor-parallel groups of at most so many consecutive
   devices stay within a node. False where it is no block: nothing, or devices of two kinds. */
int block(const Site *site, const Blocks *b, uint64_t used, int *kind, num *units, int *align)
{
    if (!used) return 0;
    *kind = b->kind[lowest(used)], *units = 0;
    for (uint64_t rest = used; rest; rest &= rest - 1) {
        int i = lowest(rest);
        if (b->kind[i] != *kind) return 0;
        *units += b->size[i];
    }
    num unit = site->unit[*kind], width = site->width[*kind], aligned = width;
    if (unit < width) {
        num first = INT64_MAX, last = -1;
        for (uint64_t rest = used; rest; rest &= rest - 1) {
            int i = lowest(rest);
            num start = b->start[i] * unit, size = b->size[i] * unit, both = start | size | width;
            if (start < first) first = start;
            if (start + size - 1 > last) last = start + size - 1;
            if ((both & -both) < aligned) aligned = both & -both;
        }
        if (first / width == last / width) aligned = width;
    }
    *align = 63 - __builtin_clzll((uint64_t)aligned);
    return 1;
}

/* First row and number of the options of a stage on a block; the first is -1 where they were not asked for yet. */
const num *options_of(const Shape *shape, const Rows *rows, int stage, int kind, num units, int align)
{
    return rows->where + 2 * (((shape->profile[stage] * rows->kinds + kind) * rows->most_units + units) * rows->aligns + align);
}

/* Work that was seen elsewhere may shrink by so much on another block: below it, a row is not asked for. */
static const double SHRINKS = 0.9;

/* The row of every stage's option, and seconds that a step takes at least. A row that is missing is thought of as at least
   as much work as the least known; where a step then takes longer than `asking`, it is not asked for: no plan. */
int choose(const Shape *shape, const Rows *rows, const Site *site, const State *state, Work *w, double beyond, double asking,
           double *least)
{
    double lanes[MOST_ISLANDS] = {0.0};
    int missing = 0;
    *least = 0.0;
    for (int s = 0; s < shape->stages; s++) {
        int kind = 0, align = 0;
        num units = 0;
        if (shape->kind[s] != HOST && !block(site, &w->blocks, w->blocks.used[s], &kind, &units, &align)) return INVALID;
        const num *where = options_of(shape, rows, s, kind, units, align);
        double seconds = 0.0;
        if (where[0] >= 0) {
            if (where[1] == 0) return INVALID;
            w->row[s] = (int)(where[0] + state->option[s] % where[1]);
            seconds = rows->least[w->row[s]];
        } else {
            double work = rows->work[shape->profile[s] * rows->kinds + kind];
            if (work < 1e300 && units) seconds = SHRINKS * work / (double)units;
            if (!missing)
                w->miss[0] = MISSING_OPTIONS, w->miss[1] = s, w->miss[2] = kind, w->miss[3] = units, w->miss[4] = align;
            missing = 1;
        }
        for (uint64_t rest = w->blocks.used[s]; rest; rest &= rest - 1) {
            int i = lowest(rest);
            lanes[i] += seconds;
            if (lanes[i] > *least) *least = lanes[i];
        }
    }
    if (!missing || *least > beyond) return OK;
    return *least <= asking ? MISSING_OPTIONS : INVALID;
}

/* Which stages use the trainer's own weights; of each weights edge the first that its copy serves, else NONE. */
void join(const Shape *shape, const Rows *rows, Work *w)
{
    for (int i = 0; i < shape->stages * SLOTS; i++) {
        w->trained[i] = shape->feed[i] == OWN;
        w->tenant[i] = (int)shape->model[i];
    }
    for (int e = 0; e < shape->edge_count; e++) {
        const num *edge = shape->edges + e * E_WIDTH;
        int consumer = (int)edge[E_CONSUMER];
        uint64_t used = w->blocks.used[consumer];
        num layout = rows->layout[w->row[consumer]];
        int same = used == w->blocks.used[edge[E_TRAINER]] && layout == rows->layout[w->row[edge[E_TRAINER]]];
        w->copy[e] = same && edge[E_DELAY] == 1 ? NONE : e;
        for (int o = 0; o < shape->edge_count && w->copy[e] >= 0; o++) {
            const num *other = shape->edges + o * E_WIDTH;
            if (other[E_CLASS] != edge[E_CLASS]) continue;
            int where = (int)other[E_CONSUMER];
            int alike = w->blocks.used[where] == used && rows->layout[w->row[where]] == layout;
            if (alike && other[E_PLACE] < shape->edges[w->copy[e] * E_WIDTH + E_PLACE]) w->copy[e] = o;
        }
        for (int slot = 0; slot < SLOTS; slot++) {
            int i = consumer * SLOTS + slot;
            if (shape->feed[i] != e) continue;
            w->trained[i] = w->copy[e] < 0;
            if (w->copy[e] >= 0) w->tenant[i] = 1000 + w->copy[e];
        }
    }
}
