//go:build linux

package supervisor

import (
	"log"
	"os"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

// host is what the supervisor knows of its host and job. It does not change.
type host struct {
	spec     protocol.Spec
	folder   jobfolder.Folder
	login    []string // environment of the login that started the agent
	cores    []int    // that tasks may use
	children *process.Children
	log      *log.Logger
}

// newHost makes this process the reaper of all tasks.
func newHost(f jobfolder.Folder, spec protocol.Spec) (*host, error) {
	cores, err := process.AllowedCores()
	if err != nil {
		return nil, err
	}
	children, err := process.NewChildren()
	if err != nil {
		return nil, err
	}
	return &host{spec: spec, folder: f, login: program.LoginOf(os.Environ()), cores: cores, children: children,
		log: log.New(os.Stderr, "supervisor: ", log.LstdFlags|log.Lmicroseconds)}, nil
}

// place is where the host's sockets are opened.
func (h *host) place() sockets.Place {
	return sockets.Place{Addr: h.spec.DataAddr, Low: h.spec.PortLow, High: h.spec.PortHigh}
}

// identity is what this agent proves to the others.
func (h *host) identity() sockets.Identity {
	return sockets.Identity{Secret: h.spec.Secret, HostIndex: h.spec.HostIndex}
}

// failed is the verdict of a job that ends for a reason of this host.
func (h *host) failed(reason string) protocol.Verdict {
	return jobfolder.Failed(h.spec.Host, reason)
}
