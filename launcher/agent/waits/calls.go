//go:build linux

package waits

import (
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// common returns those system calls that can block and that every 64-bit Linux
// has, by number.
func common() map[int64]call {
	return map[int64]call{
		unix.SYS_FUTEX:           {protocol.OnLock, nothing},
		unix.SYS_NANOSLEEP:       {protocol.Sleeps, nothing},
		unix.SYS_CLOCK_NANOSLEEP: {protocol.Sleeps, nothing},
		unix.SYS_RT_SIGSUSPEND:   {protocol.Sleeps, nothing},
		unix.SYS_WAIT4:           {protocol.OnChild, nothing},
		unix.SYS_WAITID:          {protocol.OnChild, nothing},
		unix.SYS_FLOCK:           {protocol.OnFile, descriptor},
		unix.SYS_FCNTL:           {protocol.OnFile, descriptor}, // the only command of fcntl that blocks is F_SETLKW
		unix.SYS_READ:            {protocol.OnRead, descriptor},
		unix.SYS_READV:           {protocol.OnRead, descriptor},
		unix.SYS_RECVFROM:        {protocol.OnRead, descriptor},
		unix.SYS_RECVMSG:         {protocol.OnRead, descriptor},
		unix.SYS_ACCEPT:          {protocol.OnRead, descriptor},
		unix.SYS_ACCEPT4:         {protocol.OnRead, descriptor},
		unix.SYS_WRITE:           {protocol.OnWrite, descriptor},
		unix.SYS_WRITEV:          {protocol.OnWrite, descriptor},
		unix.SYS_SENDTO:          {protocol.OnWrite, descriptor},
		unix.SYS_SENDMSG:         {protocol.OnWrite, descriptor},
		unix.SYS_CONNECT:         {protocol.OnWrite, descriptor},
		unix.SYS_PPOLL:           {protocol.OnPoll, pollList},
		unix.SYS_PSELECT6:        {protocol.OnPoll, selectSets},
		unix.SYS_EPOLL_PWAIT:     {protocol.OnPoll, epollSet},
		unix.SYS_EPOLL_PWAIT2:    {protocol.OnPoll, epollSet},
	}
}
