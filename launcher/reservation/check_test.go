package reservation

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

func TestCheckReportsReservedGPUs(t *testing.T) {
	const head = "Num       RefCount Protocol Flags    Type St Inode Path\n0000000000000000: 00000002 00000000 00010000 0001 01 20573 /run/x\n0000000000000000: 00000003 00000000 00000000 0001 03 99\n"
	socket := func(flags, name string) string {
		return "0000000000000000: 00000002 00000000 " + flags + " 0001 01 12345 @plx-gpu-" + name + "\n"
	}
	lock := func(name string) string { return socket("00010000", name) }
	ticket := func(name string) string { return socket("00000000", name) }
	const booked, first = "gpu 1: GPU GPU-a is reserved by another job of plx", "another launch is ahead in the queue for its GPUs"
	own := protocol.Claim{Device: "GPU-a", Name: "gpu 1"}
	share := protocol.Claim{Device: "GPU-a", Name: "gpu 1", Shared: true}
	mig := protocol.Claim{Device: "MIG-GPU-a/7/0", Name: "gpu 1:0", Whole: "GPU-a"}
	for name, c := range map[string]struct {
		list  string
		claim protocol.Claim
		want  string
	}{
		"nothing":                        {"", own, ""},
		"another device":                 {lock("GPU-b") + lock("GPU-ab"), own, ""},
		"the device":                     {lock("GPU-a"), own, booked},
		"the device, to be shared":       {lock("GPU-a"), share, booked},
		"being taken":                    {ticket("GPU-a"), own, ""},
		"shared":                         {lock("GPU-a/shared/3"), own, booked},
		"shared, to be shared":           {lock("GPU-a/shared/3"), share, ""},
		"an earlier launch waits":        {ticket("GPU-a/wait/0b-x"), own, first},
		"a later launch waits":           {ticket("GPU-a/wait/0d-x"), own, ""},
		"a launch waits for another one": {ticket("GPU-b/wait/0b-x"), own, ""},
		"a MIG device":                   {lock("MIG-GPU-a/7/0"), mig, "gpu 1:0: GPU MIG-GPU-a/7/0 is reserved by another job of plx"},
		"another MIG device":             {lock("MIG-GPU-a/7/1") + lock("GPU-a/shared/0"), mig, ""},
		"the whole GPU of a MIG device":  {lock("GPU-a"), mig, "gpu 1:0: GPU GPU-a is reserved as a whole by another job of plx"},
		"a line that is cut off":         {"0: 1 2 00010000 @plx-gpu-GPU-a", own, ""},
	} {
		if got := taken(strings.NewReader(head+c.list), []protocol.Claim{{Device: "GPU-z"}, c.claim}, "0c-x"); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
