//go:build linux

// Package gpulock reserves the GPUs of a host for jobs of plx. It works across
// users and versions of plx, and needs no daemon.
//
//	locks, err := gpulock.Take([]protocol.Claim{{Device: "GPU-02ba5a4d-..."}}, ticket)
//	var held *gpulock.Held
//	if errors.As(err, &held) {
//		fmt.Println(held.Device, "is reserved by", held.Holder)
//	}
//
// A lock is a listening Unix socket in the abstract namespace. Its name
// contains the device's UUID. The kernel lets only one socket have a name, and
// frees the name when the last descriptor of the socket is closed. The job's
// watchdog, its supervisor (the agent process that runs the tasks) and every
// task inherit the descriptor, so the lock lasts exactly as long as these
// processes. A lock is no file, so nothing can delete it from disk while the
// job runs, and kill -9 cannot leave it behind.
//
// # Shared locks
//
// Up to 16 jobs can share a device. Each binds its own name, which is the
// device's name and a number. While a job looks for a free number, it also
// binds the device's own name. An exclusive lock keeps the device's own name,
// and is granted only if no shared name is bound.
//
// # MIG devices
//
// A job that reserves a MIG device holds an exclusive lock of that device and
// a shared lock of the whole GPU. Other jobs can then reserve the GPU's other
// MIG devices, but not the GPU as a whole.
//
// # Waiting
//
// A launch that waits for GPUs enters a [Queue]. Take fails if launches with
// earlier tickets wait for one of the devices.
//
// # Limits
//
// Abstract socket names belong to a network namespace. Containers with their
// own network namespace do not see the locks of the host or of other
// containers. The locks are advisory: any user can take one, with or without
// plx, and programs that do not use plx can still use the GPU.
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

// prefix is the start of the socket names of all GPU locks. The "@" selects
// the abstract namespace.
const prefix = "@" + protocol.LockPrefix

// maxShared is the maximum number of jobs that share a device.
const maxShared = 16

// If another process is just taking or releasing a lock, take retries: for
// retryTime in all, with retryPause between two attempts.
const (
	retryTime  = 3 * time.Second
	retryPause = 2 * time.Millisecond
)

// Take takes the locks of all claimed devices, or none. It locks in the order
// of the devices' names, so if two jobs claim the same devices, one of them
// gets all. The error is a [*Held] if another job holds one of the devices,
// and a [*Waiting] if launches with an earlier ticket wait for one of them.
// The returned files are close-on-exec.
func Take(claims []protocol.Claim, ticket string) (locks []*os.File, err error) {
	claims = merged(claims)
	if len(claims) == 0 {
		return nil, nil
	}
	for _, c := range withWholeGPUs(claims) {
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

// Release closes this process's descriptors of the locks. A lock stays taken
// while another process has inherited its descriptor.
func Release(locks []*os.File) {
	for _, f := range locks {
		f.Close() // the lock's socket has no data to flush, so Close cannot lose any
	}
}

// withWholeGPUs adds, for each claimed MIG device, a shared claim on the GPU
// that contains it, so that no other job can reserve that GPU as a whole.
// claims has each device once.
func withWholeGPUs(claims []protocol.Claim) []protocol.Claim {
	all := slices.Clone(claims)
	for _, c := range claims {
		if c.Whole != "" && !slices.ContainsFunc(all, func(o protocol.Claim) bool { return o.Device == c.Whole }) {
			all = append(all, protocol.Claim{Device: c.Whole, Name: c.Name, Shared: true})
		}
	}
	return merged(all)
}

// merged returns one claim per device, sorted by device. The claim is shared
// only if all claims on that device are shared.
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

// validDevice matches the UUID of a device, or the PCI address of a GPU whose UUID
// is unknown. The length is limited because a socket's address, which contains
// the name, has 108 bytes.
var validDevice = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9:./-]{0,63}$`) })

// errLockChanging is returned if another process is just taking or releasing the
// lock; the caller retries.
var errLockChanging = errors.New("another process is taking or releasing its lock")

// take takes the lock of one device.
func take(c protocol.Claim) (fd int, err error) {
	if !validDevice().MatchString(c.Device) {
		return -1, fmt.Errorf("lock GPU %q: that is no UUID", c.Device)
	}
	for deadline := time.Now().Add(retryTime); ; time.Sleep(retryPause) {
		fd, err := attempt(c)
		if !errors.Is(err, errLockChanging) || time.Now().After(deadline) {
			return fd, err
		}
	}
}

func sharedName(device string, i int) string { return prefix + device + "/shared/" + strconv.Itoa(i) }

// attempt tries once to take the lock of one device. It binds the device's own
// name first, because only the process that has bound this name may search the
// shared names and bind one.
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
		err = checkUnshared(c.Device)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if (c.Shared || err != nil) && fd != own {
		unix.Close(own) // release the device's own name, which a shared lock needs only while it is being taken
	}
	if err != nil {
		unix.Close(fd) // the socket has no data to flush
		return -1, err
	}
	return fd, nil
}

// bindShared binds the device's first free shared name and returns the socket.
func bindShared(device string) (int, error) {
	for i := range maxShared {
		fd, err := bind(sharedName(device, i))
		if !errors.Is(err, unix.EADDRINUSE) {
			return fd, err
		}
	}
	return -1, fmt.Errorf("GPU %s: already shared by %d jobs, the maximum", device, maxShared)
}

// checkUnshared returns an error if one of the device's shared names is bound,
// which means that another job shares the device.
func checkUnshared(device string) error {
	for i := range maxShared {
		fd, err := bind(sharedName(device, i))
		if errors.Is(err, unix.EADDRINUSE) {
			return heldBy(device, sharedName(device, i))
		}
		if err != nil {
			return err
		}
		unix.Close(fd) // the bind only tested whether the name was free
	}
	return nil
}

// bind returns a Unix socket that is bound to name and does not listen yet.
func bind(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		unix.Close(fd) // the socket has no data to flush
		return -1, err
	}
	return fd, nil
}
