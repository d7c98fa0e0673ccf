//go:build linux

// Package gpulock books the GPUs of a host for the jobs of plx, across users and
// versions and without a daemon.
//
//	locks, err := gpulock.Take([]protocol.Claim{{Device: "GPU-02ba5a4d-..."}}, ticket)
//	var held *gpulock.Held
//	if errors.As(err, &held) {
//		fmt.Println(held.Device, "is booked by", held.Holder)
//	}
//
// A lock is a listening socket whose abstract name has the device's UUID. The kernel
// lets one socket have the name, and frees the name when the last descriptor of the
// socket is closed. The watchdog, the supervisor and every task inherit the
// descriptor, so the lock lasts exactly as long as processes of the job. Nothing of it
// is on a disk: no cleaner of old files, no other user and no kill -9 can remove the
// name from under its holder or leave it behind.
//
// # Shared locks
//
// A shared lock has one of a few names of its own beside the device's name, which is
// held only while these are looked at. An exclusive lock holds the device's name, and
// is only taken if nobody has a shared one.
//
// # MIG devices
//
// Who books a MIG device has a lock of its UUID, and a shared one of the whole GPU. So the
// GPU's other MIG devices are free, and the GPU as a whole is not.
//
// # Waiting
//
// A launch that waits enters a [Queue]. Take refuses to overtake launches whose tickets
// are earlier.
//
// # What it does not cover
//
// Abstract names belong to a network namespace. Containers with a network of their own
// do not see the locks of the host or of one another. The lock is an agreement between
// users of plx: any user can take it, with or without plx, and nothing keeps other
// programs off the GPU.
package gpulock

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// prefix begins the names of all locks.
const prefix = "@" + protocol.LockPrefix

// mostShared is how many jobs can share a device.
const mostShared = 16

// Bounds of an attempt that finds a lock which is just being taken or given up.
const (
	settleTime  = 3 * time.Second
	settlePause = 2 * time.Millisecond
)

// Take takes all locks or none. Locks are taken in the order of the devices' names, so of
// two jobs that want the same ones, one gets them. The error is a [*Held] if somebody
// else has one of them, and a [*Waiting] if launches with an earlier ticket wait for one.
// The files are closed on exec.
func Take(claims []protocol.Claim, ticket string) (locks []*os.File, err error) {
	claims = merged(claims)
	if len(claims) == 0 {
		return nil, nil
	}
	for _, c := range withWholes(claims) {
		fd, err := take(c)
		if err != nil {
			Release(locks)
			if c.Name != "" {
				err = fmt.Errorf("%s: %w", c.Name, err)
			}
			return nil, err
		}
		locks = append(locks, os.NewFile(uintptr(fd), c.Device))
	}
	before, err := ahead(claims, ticket)
	if err == nil && len(before) > 0 {
		err = &Waiting{Launches: len(before)}
	}
	if err != nil {
		Release(locks)
		return nil, err
	}
	return locks, nil
}

// Release gives locks up, unless other processes have them too.
func Release(locks []*os.File) {
	for _, f := range locks {
		f.Close() // nothing was written to it
	}
}

// withWholes adds to merged claims those of the GPUs of MIG devices.
func withWholes(claims []protocol.Claim) []protocol.Claim {
	all := slices.Clone(claims)
	for _, c := range claims {
		if c.Whole != "" && !slices.ContainsFunc(all, func(o protocol.Claim) bool { return o.Device == c.Whole }) {
			all = append(all, protocol.Claim{Device: c.Whole, Name: c.Name, Shared: true})
		}
	}
	return merged(all)
}

// merged returns each device once, sorted. A claim is shared if all of its device are.
func merged(claims []protocol.Claim) (all []protocol.Claim) {
	for _, c := range claims {
		i := slices.IndexFunc(all, func(o protocol.Claim) bool { return o.Device == c.Device })
		if i < 0 {
			all = append(all, c)
		} else {
			all[i].Shared = all[i].Shared && c.Shared
		}
	}
	slices.SortFunc(all, func(a, b protocol.Claim) int { return strings.Compare(a.Device, b.Device) })
	return all
}

// device is what a UUID, or the PCI address of a GPU whose UUID is not known, can look
// like. The longest name has to fit in a socket's address, which has 108 bytes.
var device = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:./-]{0,63}$`) })

// errUnsettled says that somebody is just taking the lock or giving it up.
var errUnsettled = errors.New("its lock is being taken or given up")

// take takes one lock.
func take(c protocol.Claim) (fd int, err error) {
	if !device().MatchString(c.Device) {
		return -1, fmt.Errorf("lock GPU %q: that is no UUID", c.Device)
	}
	for deadline := time.Now().Add(settleTime); ; time.Sleep(settlePause) {
		fd, err := attempt(c)
		if !errors.Is(err, errUnsettled) || time.Now().After(deadline) {
			return fd, err
		}
	}
}

func sharedName(device string, i int) string { return prefix + device + "/shared/" + strconv.Itoa(i) }

// attempt tries to take a lock. Whoever has bound the device's name may look at the
// shared ones and take one.
func attempt(c protocol.Claim) (fd int, err error) {
	own, err := bind(prefix + c.Device)
	if errors.Is(err, unix.EADDRINUSE) {
		return -1, heldBy(c.Device, prefix+c.Device)
	}
	if err != nil {
		return -1, fmt.Errorf("lock GPU %s: %w", c.Device, err)
	}
	fd, err = own, nil
	if c.Shared {
		fd, err = bindShared(c.Device)
	} else {
		err = unshared(c.Device)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if (c.Shared || err != nil) && fd != own {
		unix.Close(own) // it has served its purpose
	}
	if err != nil {
		unix.Close(fd) // nothing was written to it
		return -1, err
	}
	return fd, nil
}

// bindShared binds the first shared name that is free.
func bindShared(device string) (int, error) {
	for i := range mostShared {
		fd, err := bind(sharedName(device, i))
		if !errors.Is(err, unix.EADDRINUSE) {
			return fd, err
		}
	}
	return -1, fmt.Errorf("GPU %s: %d jobs share it already, more cannot", device, mostShared)
}

// unshared returns an error if a shared name is bound.
func unshared(device string) error {
	for i := range mostShared {
		fd, err := bind(sharedName(device, i))
		if errors.Is(err, unix.EADDRINUSE) {
			return heldBy(device, sharedName(device, i))
		}
		if err != nil {
			return err
		}
		unix.Close(fd) // it was only a question
	}
	return nil
}

// bind returns a socket with the given name, which does not listen yet.
func bind(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(fd) // nothing was written to it
		return -1, err
	}
	return fd, nil
}
