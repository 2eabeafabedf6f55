"""The failure list, case by case, through the whole proxy: upstreams, clients, the process and its disk."""
