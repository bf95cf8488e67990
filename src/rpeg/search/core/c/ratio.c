/* The maximum cycle ratio by Howard's policy iteration; rpeg.sim.howard is the reference. */
#include "core.h"

static const double TOLERANCE = 1e-13;
enum { ROUNDS = 500 };

/* Ratios and potentials under each node's policy; the greatest ratio. */
static double judge(Work *w)
{
    double best = 0.0;
    for (int i = 0; i < w->items; i++) w->seen[i] = -1;
    for (int root = 0; root < w->items; root++) {
        int length = 0, node = root;
        while (w->seen[node] < 0) {
            w->seen[node] = root;
            w->path[length++] = node;
            node = w->dst[w->policy[node]];
        }
        int fresh = w->seen[node] == root && length;
        if (fresh) {
            int begin = length - 1, crossed = 0;
            double total = 0.0;
            while (w->path[begin] != node) begin--;
            for (int i = begin; i < length; i++) {
                total += w->weight[w->policy[w->path[i]]];
                crossed += w->height[w->policy[w->path[i]]];
            }
            w->ratio[node] = total / crossed;
            if (w->ratio[node] > best) best = w->ratio[node];
        }
        for (int back = length - 1; back >= 0; back--) {
            int other = w->path[back];
            if (other == node && fresh) continue;
            int arc = w->policy[other];
            w->ratio[other] = w->ratio[w->dst[arc]];
            w->value[other] = w->weight[arc] - w->ratio[other] * w->height[arc] + w->value[w->dst[arc]];
        }
    }
    return best;
}

/* Turns picks to better arcs: first to cycles of a higher ratio, where there are none to higher potentials. */
static int improve(Work *w, double epsilon)
{
    int changed = 0;
    for (int node = 0; node < w->items; node++) {
        double best = w->ratio[node] + epsilon;
        for (int i = w->head[node]; i < w->head[node + 1]; i++) {
            int arc = w->out[i];
            if (w->ratio[w->dst[arc]] > best) best = w->ratio[w->dst[arc]], w->policy[node] = arc, changed = 1;
        }
    }
    if (changed) return 1;
    for (int node = 0; node < w->items; node++) {
        double best = w->value[node] + epsilon;
        for (int i = w->head[node]; i < w->head[node + 1]; i++) {
            int arc = w->out[i];
            if (w->ratio[w->dst[arc]] < w->ratio[node] - epsilon) continue;
            double there = w->weight[arc] - w->ratio[node] * w->height[arc] + w->value[w->dst[arc]];
            if (there > best) best = there, w->policy[node] = arc, changed = 1;
        }
    }
    return changed;
}

/* Of a graph in which every node has an arc out and every cycle a height. `policy`: where to begin, and the answer. */
double cycle_ratio(Work *w)
{
    double most = 1e-300, found = 0.0;
    for (int i = 0; i < w->items; i++) w->value[i] = 0.0;
    for (int a = 0; a < w->arcs; a++)
        if (w->weight[a] > most) most = w->weight[a];
    for (int i = 0; i < ROUNDS; i++) {
        found = judge(w);
        if (!improve(w, most * TOLERANCE)) break;
    }
    return found;
}
