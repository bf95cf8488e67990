/* What the devices and hosts of a state hold; rpeg.sim.memory is the reference.

   What never leaves a device is there while others use it; what is offloaded is there from its reload to its offload,
   which the order of the lane says. An engine's cache takes what is left of its share. */
#include "core.h"

static inline double larger(double a, double b) { return a > b ? a : b; }

/* What of each stage's own state is offloaded, 0 where that is for others to say; of each rest the stages that use it. */
void away(const Shape *shape, const State *state, Work *w)
{
    for (int s = 0; s < shape->stages; s++) {
        int trains = shape->kind[s] == TRAIN;
        w->away[s] = trains ? (int)state->offload[s] : 0;
        w->users[s] = trains && state->offload[s] ? 1ull << s : 0;
    }
    for (int s = 0; s < shape->stages; s++) {
        if (shape->kind[s] != GENERATE && shape->kind[s] != INFERENCE) continue;
        int own = 0, frozen = 0, borrowed = 0, lent = 0;
        uint64_t users = 1ull << s;
        for (int slot = 0; slot < SLOTS; slot++) {
            int i = s * SLOTS + slot, edge = (int)shape->feed[i];
            if (shape->model[i] < 0) continue;
            if (edge == NONE) frozen = 1;
            else if (w->copy[edge] < 0) lent |= state->offload[shape->edges[edge * E_WIDTH + E_TRAINER]] == 2;
            else if (shape->edges[w->copy[edge] * E_WIDTH + E_CONSUMER] == s) own = 1;
            else borrowed = 1;
        }
        for (int e = 0; e < shape->edge_count; e++)
            if (w->copy[e] >= 0 && shape->edges[w->copy[e] * E_WIDTH + E_CONSUMER] == s)
                users |= 1ull << shape->edges[e * E_WIDTH + E_CONSUMER];
        int holds = own || frozen || (shape->kind[s] == GENERATE && !borrowed);
        if (state->offload[s] && holds) w->away[s] = 2;
        if (lent || w->away[s]) w->users[s] = users;
    }
}

/* All uses of weights as a table, for what follows. */
void gather(const Shape *shape, const Rows *rows, Work *w)
{
    w->use_count = 0;
    for (int s = 0; s < shape->stages; s++) {
        int row = w->row[s], kind = (int)shape->kind[s];
        for (int slot = 0; slot < SLOTS; slot++) {
            int i = s * SLOTS + slot;
            if (w->tenant[i] < 0) continue;
            int variant = w->trained[i], gone = w->away[s], edge = (int)shape->feed[i];
            if (edge >= 0 && variant && kind != GENERATE) gone = w->away[shape->edges[edge * E_WIDTH + E_TRAINER]];
            w->gone[i] = gone;
            const double *held = rows->held + (((num)row * SLOTS + slot) * 2 + variant) * HELD;
            const double *host = rows->host + ((num)row * SLOTS + slot) * 4;
            Use *use = &w->uses[w->use_count++];
            use->stage = s, use->tenant = w->tenant[i], use->kind = kind, use->gone = gone;
            use->weights = held[1], use->more = held[2], use->peak = held[0], use->process = held[7];
            if (gone && variant && kind == INFERENCE) use->peak = held[6];
            if (kind == GENERATE) use->peak = rows->engine[(num)row * 6], use->process = rows->engine[(num)row * 6 + 5];
            for (int k = 0; k < 4; k++) use->host[k] = host[k];
        }
    }
}

/* One tenant's state is as large as the largest of its uses. */
static void count_in(Tally *t, int name, double bytes)
{
    for (int i = 0; i < t->count; i++)
        if (t->name[i] == name) {
            t->bytes[i] = larger(t->bytes[i], bytes);
            return;
        }
    t->name[t->count] = name;
    t->bytes[t->count++] = bytes;
}

static double total(const Tally *t)
{
    double sum = 0.0;
    for (int i = 0; i < t->count; i++) sum += t->bytes[i];
    return sum;
}

/* Bytes that a model's generator has for its cache on an island. */
static double cache_room(Work *w, int island, int model, double budget)
{
    Tally *t = &w->tally;
    t->count = 0;
    for (int u = 0; u < w->use_count; u++) {
        const Use *use = &w->uses[u];
        if (use->kind <= GENERATE || !(w->blocks.used[use->stage] >> island & 1) || use->tenant == model) continue;
        count_in(t, use->tenant, (use->gone != 2 ? use->weights : 0.0) + (use->gone == 0 ? use->more : 0.0));
    }
    for (int i = 0; i < t->count; i++) budget -= t->bytes[i];
    return budget;
}

/* Of each generator its cache on each island, and the smallest of them. */
void caches(const Shape *shape, const Rows *rows, const Site *site, Work *w)
{
    for (int s = 0; s < shape->stages; s++) {
        w->least[s] = 1e300;
        if (shape->kind[s] != GENERATE) continue;
        const double *engine = rows->engine + (num)w->row[s] * 6;
        double generating = engine[1], each = engine[2], most = engine[3];
        for (uint64_t rest = w->blocks.used[s]; rest; rest &= rest - 1) {
            int island = lowest(rest), kind = w->blocks.kind[island];
            double budget = site->share[kind] * site->capacity[kind] - generating;
            double left = cache_room(w, island, (int)shape->model[s * SLOTS], budget);
            double cache = left < each * most ? left : each * most;
            cache = larger(each, cache);
            w->cache[s * MOST_ISLANDS + island] = cache;
            if (cache < w->least[s]) w->least[s] = cache;
        }
    }
}

/* Of each item of a lane, the rests that are on its devices meanwhile, as bits of stages. `stack`: the items of the lane
   in their order; their number. */
static int awake(Work *w, int lane)
{
    int count = 0, *places = w->stack;
    for (int i = 0; i < w->items; i++) {
        int item = w->sequence[i];
        if (w->mask[item] >> lane & 1) places[count++] = item, w->there[item] = 0;
    }
    for (int i = 0; i < count; i++) {
        if (w->kind[places[i]] != RELOAD) continue;
        int stage = w->stage[places[i]];
        for (int j = i;; j = (j + 1) % count) {
            w->there[places[j]] |= 1ull << stage;
            if (w->kind[places[j]] == OFFLOAD && w->stage[places[j]] == stage) break;
        }
    }
    return count;
}

/* Bytes by tenant and what, that lie on an island's devices while nothing of them runs. */
static void resting(Work *w, int island, uint64_t there)
{
    Tally *t = &w->tally;
    t->count = 0;
    for (int u = 0; u < w->use_count; u++) {
        const Use *use = &w->uses[u];
        if (!(w->blocks.used[use->stage] >> island & 1)) continue;
        int here = there >> use->stage & 1;                /* its rest: all of it, or a trainer's optimizer alone */
        int whole = here && !(use->kind == TRAIN && w->away[use->stage] == 1);
        count_in(t, 4 * use->tenant + WEIGHTS, use->gone != 2 || whole ? use->weights : 0.0);
        if (use->kind == TRAIN)
            count_in(t, 4 * use->tenant + OPTIMIZER, use->gone == 0 || here ? use->more : 0.0);
        else if (use->kind == GENERATE)
            count_in(t, 4 * use->tenant + CACHE,
                     use->gone == 0 || here ? w->cache[use->stage * MOST_ISLANDS + island] : 0.0);
    }
}

/* Bytes of what rests that a use of a tenant does not count itself. */
static double beside_own(const Tally *t, const Use *use)
{
    double sum = 0.0;
    for (int i = 0; i < t->count; i++) {
        if (t->name[i] / 4 == use->tenant) {
            int what = t->name[i] % 4;
            if (what == WEIGHTS || (use->kind == TRAIN && what == OPTIMIZER) || (use->kind == GENERATE && what == CACHE))
                continue;
            if (use->kind == INFERENCE && what == OPTIMIZER && use->gone == 0) continue;
        }
        sum += t->bytes[i];
    }
    return sum;
}

/* The most that a device of an island holds at any time. */
static double island_peak(const Shape *shape, Work *w, int island)
{
    int count = awake(w, island);
    uint64_t beside[MOST_STAGES] = {0};
    double worst = 0.0, process = 0.0;
    for (int u = 0; u < w->use_count; u++)
        if (w->blocks.used[w->uses[u].stage] >> island & 1) process = larger(process, w->uses[u].process);
    for (int i = 0; i < count; i++) {
        int item = w->stack[i], kind = w->kind[item], stage = w->stage[item];
        if (kind == RELOAD || kind == OFFLOAD) {
            resting(w, island, w->there[item]);
            worst = larger(worst, process + total(&w->tally));
        } else if (w->there[item]) {
            if (kind == TRANSFER) stage = (int)shape->edges[stage * E_WIDTH + E_CONSUMER];
            for (int rest = 0; rest < shape->stages; rest++) {
                int own = kind == RUN ? (int)(w->users[rest] >> stage & 1) : rest == stage;
                if (w->there[item] >> rest & 1 && !own) beside[stage] |= 1ull << rest;
            }
        }
    }
    for (int u = 0; u < w->use_count; u++) {
        const Use *use = &w->uses[u];
        if (!(w->blocks.used[use->stage] >> island & 1)) continue;
        resting(w, island, beside[use->stage]);
        double bytes = use->peak + (use->kind == GENERATE ? w->cache[use->stage * MOST_ISLANDS + island] : 0.0);
        worst = larger(worst, bytes + beside_own(&w->tally, use));
    }
    return worst;
}

double device_short(const Shape *shape, const Site *site, Work *w)
{
    double shortage = 0.0;
    for (int i = 0; i < w->blocks.count; i++)
        shortage += larger(0.0, island_peak(shape, w, i) / site->capacity[w->blocks.kind[i]] - 1.0);
    return shortage;
}

/* Bytes of the host of a node whose devices belong to these islands. A trainer speaks for its tenant, else the first that
   uses it. */
static double hosted(const Work *w, uint64_t islands)
{
    double sum = 0.0, process = 0.0;
    for (int u = 0; u < w->use_count; u++) {
        const Use *use = &w->uses[u];
        if (!(w->blocks.used[use->stage] & islands)) continue;
        int speaks = 1;
        for (int v = 0; v < w->use_count && speaks; v++) {
            const Use *other = &w->uses[v];
            if (v == u || other->tenant != use->tenant || !(w->blocks.used[other->stage] & islands)) continue;
            int before = other->kind == TRAIN || (v < u && use->kind != TRAIN);
            if (before && other->stage != use->stage) speaks = 0;
        }
        process = larger(process, use->host[3]);
        if (speaks) sum += use->host[use->kind == GENERATE ? 0 : w->away[use->stage]];
    }
    return sum + process;
}

double host_short(const Site *site, Work *w)
{
    const Blocks *b = &w->blocks;
    double shortage = 0.0;
    for (int i = 0; i < b->count; i++) {
        int kind = b->kind[i];
        num unit = site->unit[kind], width = site->width[kind];
        if (site->host[kind] <= 0.0) continue;
        uint64_t islands = 1ull << i;
        if (unit < width) {                                /* others of its nodes count too */
            num low = b->start[i] * unit / width, high = ((b->start[i] + b->size[i]) * unit - 1) / width;
            for (int o = 0; o < b->count; o++) {
                if (b->kind[o] != kind) continue;
                num first = b->start[o] * unit, last = first + b->size[o] * unit - 1;
                if (last / width >= low && first / width <= high) islands |= 1ull << o;
            }
        }
        shortage += larger(0.0, hosted(w, islands) / site->host[kind] - 1.0);
    }
    return shortage;
}
