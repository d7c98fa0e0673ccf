//go:build linux

package waits

import (
	"maps"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// calls returns the system calls that can block, by number, including those
// that exist on amd64 only.
var calls = sync.OnceValue(func() map[int64]call {
	all := common()
	maps.Copy(all, map[int64]call{
		unix.SYS_POLL:       {protocol.OnPoll, pollList},
		unix.SYS_SELECT:     {protocol.OnPoll, selectSets},
		unix.SYS_EPOLL_WAIT: {protocol.OnPoll, epollSet},
		unix.SYS_PAUSE:      {protocol.Sleeps, nothing},
	})
	return all
})
