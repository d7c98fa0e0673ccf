package jobs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// diffHosts compares the hosts that the user wants with the hosts that the job
// has. fresh lists the wanted hosts that must join the job. leave lists the
// hosts that must leave it, as indices into have.
func diffHosts(want []hostfile.Host, have []protocol.HostPlan) (fresh []hostfile.Host, leave []int) {
	stay := map[string]bool{}
	for _, h := range want {
		folder := hosts.NewHost(h, nil).JobFolder()
		stay[folder] = true
		if !slices.ContainsFunc(have, func(p protocol.HostPlan) bool { return !p.Left && p.Folder == folder }) {
			fresh = append(fresh, h)
		}
	}
	for i, p := range have {
		if !p.Left && !stay[p.Folder] {
			leave = append(leave, i)
		}
	}
	return fresh, leave
}

// canLeave returns an error if a host must not leave the job. leave has
// indices into have, the job's hosts. A host with the job's checkpoint must
// remain, and so must the host whose agent drives the job. The driver makes
// the same check, but only after plx has copied all files to the new hosts.
func canLeave(have []protocol.HostPlan, leave []int) error {
	var members []string
	stays := false
	for i, h := range have {
		leaves := slices.Contains(leave, i)
		if !h.Left {
			members = append(members, h.Host)
			stays = stays || !leaves
		}
		if leaves && h.Drives {
			return exit.WithHint(fmt.Errorf("host %s drives the job and cannot leave it", h.Host), "keep its line in the list of hosts: the list names all hosts that the job will have")
		}
	}
	if stays {
		return nil
	}
	return exit.WithHint(fmt.Errorf("no host would stay, and the checkpoint is on the old hosts, %s", strings.Join(members, ", ")),
		"the list names all hosts that the job will have: keep the line of one that it has")
}
