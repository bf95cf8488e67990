/* Lane orders by upward rank; rpeg.schedule.list_order is the reference and says why. */
#include "core.h"

#include <math.h>

/* Arcs by one of their ends: those of node i are by[head[i]] … by[head[i + 1] - 1], in their order. */
void index_arcs(int items, int arcs, const int *ends, int *head, int *by)
{
    for (int i = 0; i <= items; i++) head[i] = 0;
    for (int arc = 0; arc < arcs; arc++) head[ends[arc] + 1]++;
    for (int i = 0; i < items; i++) head[i + 1] += head[i];
    for (int arc = arcs - 1; arc >= 0; arc--) by[--head[ends[arc] + 1]] = arc;
    for (int i = 0; i < items; i++) head[i] = head[i + 1];
    head[items] = arcs;
}

/* Longest time from each item's start to the end of all that follows it in a period. False: a cycle. */
static int upward(Work *w, const double *floor, double *rank)
{
    int top = 0, done = 0;
    for (int i = 0; i < w->items; i++) w->waiting[i] = 0;
    for (int a = 0; a < w->arcs; a++)
        if (w->height[a] == 0 && w->src[a] != w->dst[a]) w->waiting[w->src[a]]++;
    for (int i = 0; i < w->items; i++) {
        rank[i] = floor[i];
        if (w->waiting[i] == 0) w->stack[top++] = i;
    }
    while (top) {
        int node = w->stack[--top];
        done++;
        for (int i = w->into_head[node]; i < w->into_head[node + 1]; i++) {
            int arc = w->into[i], other = w->src[arc];
            if (w->height[arc] != 0 || other == node) continue;
            double through = w->weight[arc] + rank[node];
            if (through > rank[other]) rank[other] = through;
            if (--w->waiting[other] == 0) w->stack[top++] = other;
        }
    }
    return done == w->items;
}

/* Offloads, then items by falling rank; `order` holds those of equal rank in their order. */
static void by_rank(Work *w)
{
    for (int i = 1; i < w->items; i++) {
        int item = w->order[i], first = w->kind[item] == OFFLOAD, j = i - 1;
        for (; j >= 0; j--) {
            int before = w->order[j], leads = w->kind[before] == OFFLOAD;
            if ((leads && !first) || (leads == first && w->rank[before] >= w->rank[item])) break;
            w->order[j + 1] = before;
        }
        w->order[j + 1] = item;
    }
}

typedef struct {
    double now, free[MOST_ISLANDS + 1];
    int brought[MOST_ISLANDS + 1], started;
} Clock;

/* Whether something waits for a reload alone, and nothing else was brought to its lanes and is still there. */
static int wants(const Work *w, const Clock *c, int node)
{
    int users = 0, asked = 0;
    for (int i = w->head[node]; i < w->head[node + 1]; i++) {
        int arc = w->out[i], user = w->dst[arc];
        if (w->height[arc] != 0 || user == node) continue;
        users = 1;
        asked |= w->beside[user] == 0 && w->known[user] <= c->now;
    }
    if (users && !asked) return 0;
    for (uint64_t rest = w->mask[node]; rest; rest &= rest - 1)
        if (c->brought[lowest(rest)] > 0) return 0;
    return 1;
}

static int is_free(const Clock *c, uint64_t mask)
{
    for (; mask; mask &= mask - 1)
        if (c->free[lowest(mask)] > c->now) return 0;
    return 1;
}

/* Takes its lanes, and tells what follows when it may. */
static void start(Work *w, Clock *c, int node)
{
    double end = c->now + w->mean[node];
    for (uint64_t rest = w->mask[node]; rest; rest &= rest - 1) {
        int lane = lowest(rest);
        c->free[lane] = end;
        c->brought[lane] += (w->kind[node] == RELOAD) - (w->kind[node] == OFFLOAD);
    }
    for (int i = w->head[node]; i < w->head[node + 1]; i++) {
        int arc = w->out[i], other = w->dst[arc];
        if (w->height[arc] != 0 || other == node) continue;
        double at = c->now + w->weight[arc];
        w->waiting[other]--;
        if (at > w->ready[other]) w->ready[other] = at;
        if (w->kind[node] != RELOAD) {
            w->beside[other]--;
            if (at > w->known[other]) w->known[other] = at;
        }
    }
    w->left[node] = 0;
    w->sequence[c->started++] = node;
}

/* Items in the order of their start, every free lane taking the ready one of highest rank. False: stuck. */
static int greedy(Work *w)
{
    Clock c = {.now = 0.0};
    for (int i = 0; i < w->items; i++)
        w->waiting[i] = 0, w->beside[i] = 0, w->left[i] = 1, w->ready[i] = 0.0, w->known[i] = 0.0;
    for (int a = 0; a < w->arcs; a++)
        if (w->height[a] == 0 && w->src[a] != w->dst[a]) {
            w->waiting[w->dst[a]]++;
            w->beside[w->dst[a]] += w->kind[w->src[a]] != RELOAD;
        }
    for (;;) {
        int launched = 0, put_off = -1;
        for (int place = 0; place < w->items; place++) {
            int node = w->order[place];
            if (!w->left[node] || w->waiting[node] > 0 || w->ready[node] > c.now || !is_free(&c, w->mask[node])) continue;
            if (w->kind[node] == RELOAD && !wants(w, &c, node)) {
                if (put_off < 0) put_off = node;
                continue;
            }
            start(w, &c, node);
            launched = 1;
        }
        if (c.started == w->items) return 1;
        double later = 1e300;
        for (int i = 0; i < w->items; i++) {
            if (!w->left[i]) continue;
            if (w->waiting[i] == 0 && c.now < w->ready[i] && w->ready[i] < later) later = w->ready[i];
            if (w->beside[i] == 0 && c.now < w->known[i] && w->known[i] < later) later = w->known[i];
        }
        for (int lane = 0; lane < w->lanes; lane++)
            if (c.now < c.free[lane] && c.free[lane] < later) later = c.free[lane];
        if (later < 1e300) {
            c.now = later;
        } else if (!launched) {
            if (put_off < 0) return 0;
            start(w, &c, put_off);
            if (c.started == w->items) return 1;
        }
    }
}

/* The sequence in which lanes take their items; `order`: items in the order of their names. False: a cycle. */
int order_lanes(Work *w)
{
    index_arcs(w->items, w->arcs, w->src, w->head, w->out);
    index_arcs(w->items, w->arcs, w->dst, w->into_head, w->into);
    for (int a = 0; a < w->arcs; a++)
        w->weight[a] = w->key[a] < 0 ? w->mean[w->src[a]] : w->offset_mean[w->key[a]];
    for (int i = 0; i < w->items; i++) w->floor[i] = w->mean[i];
    if (!upward(w, w->floor, w->alone)) return 0;
    for (int a = 0; a < w->arcs; a++)
        if (w->height[a] == 1 && w->src[a] != w->dst[a]) {
            double through = w->weight[a] + w->alone[w->dst[a]];
            if (through > w->floor[w->src[a]]) w->floor[w->src[a]] = through;
        }
    upward(w, w->floor, w->rank);
    by_rank(w);
    return greedy(w);
}
