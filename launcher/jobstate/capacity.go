package jobstate

import (
	"fmt"

	"github.com/plx-run/plx/launcher/protocol"
)

// mayCome reports whether host h has an agent, or may come to have one.
func mayCome(v view, h int) bool {
	host := v.hosts[h]
	return host.place == member && !host.barred && (!host.gone || v.plan.Restarts.Revive && v.plan.Restarts.Max > 0)
}

// shortage says what the job lacks if only the hosts that count are there; "" if
// they are enough.
func shortage(v view, counts func(h int) bool) string {
	workers, servers, all, allServers := 0, 0, 0, 0
	for i, h := range v.hosts {
		if h.place != member {
			continue
		}
		w := protocol.Workers(h.plan.Tasks)
		s := len(h.plan.Tasks) - w
		all, allServers = all+w, allServers+s
		if counts(i) {
			workers, servers = workers+w, servers+s
		}
	}
	least := v.plan.Restarts.MinWorkers
	if least <= 0 {
		least = all
	}
	switch {
	case workers < least:
		return fmt.Sprintf("%d of %d workers are left, at least %d are needed (--min-workers)", workers, all, least)
	case workers == 0:
		return "no worker is left"
	case servers == 0 && allServers > 0:
		return "no server is left"
	}
	return ""
}
