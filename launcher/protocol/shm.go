package protocol

import "fmt"

// Shm is the directory of POSIX shared memory. Processes of a host exchange
// data through it.
const Shm = "/dev/shm"

// goodShmKiB is the size of /dev/shm, in KiB, that suffices for usual training
// programs. Docker's default of 64 MiB is known to be too small for PyTorch's
// data loaders.
const goodShmKiB = 1 << 20

// ShmFault is a problem with /dev/shm, because of which programs that use
// shared memory fail.
type ShmFault int

// Values of ShmFault.
const (
	ShmGood ShmFault = iota
	ShmMissing
	ShmFull // /dev/shm is full or nearly full
	ShmUnwritable
	ShmSmall
)

// OfShm returns the problem of a host's /dev/shm, as a value and as text for
// the user. If there is no problem, it returns ShmGood. A full /dev/shm is a
// problem because the kernel kills a program with SIGBUS if it writes more to
// shared memory than fits.
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

// formatKiB formats a size in whole units, rounded down. So hosts with nearly
// equal free space get the same text, and their messages can be merged.
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
