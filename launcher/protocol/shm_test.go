package protocol

import "testing"

func TestOfShm(t *testing.T) {
	const mib, gib = 1 << 10, 1 << 20
	for _, c := range []struct {
		folder Folder
		fault  ShmFault
		text   string
	}{
		{Folder{Path: Shm, SizeKiB: 64 * gib, FreeKiB: 64 * gib}, ShmGood, ""},
		{Folder{Path: Shm, SizeKiB: gib, FreeKiB: gib}, ShmGood, ""},
		{Folder{Path: Shm, SizeKiB: gib - 4, FreeKiB: gib - 4}, ShmSmall, "/dev/shm is small (1023 MiB, 1023 MiB left)"},
		{Folder{Path: Shm, SizeKiB: 8 * mib, FreeKiB: 8 * mib}, ShmSmall, "/dev/shm is small (8 MiB, 8 MiB left)"},
		{Folder{Path: Shm, SizeKiB: 8 * mib, FreeKiB: 0}, ShmFull, "/dev/shm is full (8 MiB, 0 left)"},
		{Folder{Path: Shm, SizeKiB: 8 * mib, FreeKiB: 80}, ShmFull, "/dev/shm is full (8 MiB, 80 KiB left)"},
		{Folder{Path: Shm, SizeKiB: 8 * mib, FreeKiB: 800}, ShmFull, "/dev/shm is nearly full (8 MiB, 800 KiB left)"},
		{Folder{Path: Shm, SizeKiB: 64 * gib, FreeKiB: 0}, ShmFull, "/dev/shm is full (64 GiB, 0 left)"},
		{Folder{Path: Shm, SizeKiB: 64 * gib, FreeKiB: gib - 1}, ShmFull, "/dev/shm is nearly full (64 GiB, 1023 MiB left)"},
		{Folder{Path: Shm, SizeKiB: 64 * gib, FreeKiB: gib}, ShmGood, ""},
		{Folder{Path: Shm, SizeKiB: 2 * gib, FreeKiB: gib / 2}, ShmGood, ""},
		{Folder{Path: Shm, SizeKiB: 2 * gib, FreeKiB: 0, Unwritable: "no space left on device"}, ShmFull, "/dev/shm is full (2048 MiB, 0 left)"},
		{Folder{Path: Shm, SizeKiB: 2 * gib, FreeKiB: gib, Unwritable: "permission denied"}, ShmUnwritable, "/dev/shm cannot be written: permission denied"},
		{Folder{Path: Shm, SizeKiB: NotKnown, FreeKiB: NotKnown, Unwritable: "no answer within 5s"}, ShmUnwritable, "/dev/shm cannot be written: no answer within 5s"},
		{Folder{Path: Shm, SizeKiB: NotKnown, FreeKiB: NotKnown, Missing: true}, ShmMissing, "/dev/shm is not there"},
		{Folder{Path: Shm, SizeKiB: NotKnown, FreeKiB: NotKnown}, ShmGood, ""}, // mounted without a limit
		{Folder{}, ShmGood, ""},
	} {
		if fault, text := OfShm(c.folder); fault != c.fault || text != c.text {
			t.Errorf("%+v: %d %q, want %d %q", c.folder, fault, text, c.fault, c.text)
		}
	}
}
