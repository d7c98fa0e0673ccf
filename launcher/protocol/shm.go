package protocol

import "fmt"

// Shm is the folder in which processes of a host share memory.
const Shm = "/dev/shm"

// goodShmKiB is the size from which on programs for training find enough shared memory. The
// default of Docker, 64 MiB, is known to be too small for PyTorch's data loaders.
const goodShmKiB = 1 << 20

// ShmFault is why programs that share memory fail.
type ShmFault int

// The faults.
const (
	ShmGood ShmFault = iota
	ShmMissing
	ShmFull // or nearly
	ShmUnwritable
	ShmSmall
)

// OfShm returns what is wrong with the folder Shm of a host, and says it. Memory that is
// mapped beyond the room of its file system ends the process by SIGBUS.
func OfShm(f Folder) (fault ShmFault, text string) {
	known := f.SizeKiB > 0 && f.FreeKiB >= 0
	room := fmt.Sprintf("(%s, %s left)", amount(f.SizeKiB), amount(f.FreeKiB))
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

// amount rounds down, so that the same is said of hosts that are about equally full.
func amount(kib int64) string {
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
