//go:build linux

package waits

import (
	"maps"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// calls are the system calls that wait, by number.
var calls = join(common, map[int64]call{
	unix.SYS_POLL:       {protocol.OnPoll, pollList},
	unix.SYS_SELECT:     {protocol.OnPoll, selectSets},
	unix.SYS_EPOLL_WAIT: {protocol.OnPoll, epollSet},
	unix.SYS_PAUSE:      {protocol.Sleeps, nothing},
})

// join returns the entries of both.
func join(a, b map[int64]call) map[int64]call {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
