package protocol

import "fmt"

// Shm is the directory of POSIX shared memory, through which processes of a
// host exchange data.
const Shm = "/dev/shm"

// goodShmKiB is the size in KiB of /dev/shm that is enough for usual training
// programs. Docker's default of 64 MiB is known to be too small for PyTorch's
// data loaders.
const goodShmKiB = 1 << 20

// ShmFault is a problem with /dev/shm that makes programs which use shared
// memory fail.
type ShmFault int

// Values of ShmFault.
const (
	ShmGood ShmFault = iota
	ShmMissing
	ShmFull // full or nearly full
	ShmUnwritable
	ShmSmall
)

// OfShm returns the problem of a host's /dev/shm, as a value and as text for
// the user. It returns ShmGood if there is none. A program that writes to
// shared memory beyond the free space is killed by SIGBUS.
func OfShm(f Folder) (fault ShmFault, text string) {
	known := f.SizeKiB > 0 && f.FreeKiB >= 0
	room := fmt.Sprintf("(%s, %s left)", formatKiB(f.SizeKiB), formatKiB(f.FreeKiB))
	switch {
	case f.Path == "":
		return ShmGood, ""
	case f.Missing:
		return ShmMissing, "/dev/shm is not there"
	case known && f.FreeKiB <= min(1<<10, f.SizeKiB/100):
		return ShmFull, "/dev/shm is full " + room
	case f.Unwritable != "":
		return ShmUnwritable, "/dev/shm cannot be written: " + f.Unwritable
	case known && f.FreeKiB < min(goodShmKiB, f.SizeKiB/10):
		return ShmFull, "/dev/shm is nearly full " + room
	case known && f.SizeKiB < goodShmKiB:
		return ShmSmall, "/dev/shm is small " + room
	}
	return ShmGood, ""
}

// formatKiB formats a size in whole units. It rounds down, so that hosts with
// nearly equal free space get the same text and can be grouped.
func formatKiB(kib int64) string {
	switch {
	case kib <= 0:
		return "0"
	case kib < 1<<10:
		return fmt.Sprintf("%d KiB", kib)
	case kib < 10<<20:
		return fmt.Sprintf("%d MiB", kib>>10)
	}
	return fmt.Sprintf("%d GiB", kib>>20)
}
