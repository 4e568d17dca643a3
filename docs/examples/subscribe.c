/* Prints what the disks do, until they are quiet for a second: cc subscribe.c -lbaro */
#include <baro.h>
#include <stdio.h>

int main(void)
{
    baro_node_t *node = baro_node_open(NULL);
    baro_subscription_t *disks = baro_subscribe(node, "disk.*{device=vd*}");
    const baro_update_t *update;
    while (baro_subscription_next(disks, 1000000000, &update) == BARO_OK)
        if (update->type == BARO_FLOAT)
            printf("%s{%s} %g\n", update->name, update->labels, update->as.f);
    baro_subscription_close(disks);
    baro_node_close(node);
    return 0;
}
