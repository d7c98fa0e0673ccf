package device_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/ptx/device"
)

func alloc(t *testing.T, m *device.Memory, size uint64) uint64 {
	t.Helper()
	at, err := m.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestAllocationsLieApart(t *testing.T) {
	m := device.NewMemory(1 << 20)
	seen := map[uint64]bool{}
	last := uint64(0)
	for i := range uint64(1000) {
		size := i%700 + 1
		at := alloc(t, m, size)
		if at%256 != 0 || seen[at] || at < last+256 {
			t.Fatalf("allocation %d at %#x", i, at)
		}
		seen[at], last = true, at+size
		if i%2 == 0 {
			if err := m.Free(at); err != nil {
				t.Fatal(err)
			}
		} else if i > 500 {
			break
		}
	}
}

func TestLimit(t *testing.T) {
	m := device.NewMemory(1000)
	at := alloc(t, m, 600)
	if _, err := m.Alloc(401); err == nil || !strings.Contains(err.Error(), "600 of 1000 bytes are in use") {
		t.Errorf("%v", err)
	}
	if err := m.Free(at); err != nil {
		t.Error(err)
	}
	alloc(t, m, 1000)
	if _, err := m.Alloc(0); err == nil {
		t.Error("an allocation of nothing")
	}
}

// Against arrays of the host: what was written is read, the rest is a fault.
func TestReadsAndWrites(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	m := device.NewMemory(1 << 20)
	const size = 300
	var at [2]uint64
	var data, known [2][size]byte
	for i := range at {
		at[i] = alloc(t, m, size)
	}
	for range 5000 {
		i, from := r.IntN(2), r.IntN(size)
		n := r.IntN(size - from + 1)
		p := make([]byte, n)
		switch r.IntN(5) {
		case 0:
			for k := range p {
				p[k] = byte(r.Uint32())
				data[i][from+k], known[i][from+k] = p[k], 1
			}
			if err := m.Write(at[i]+uint64(from), p); err != nil {
				t.Fatal(err)
			}
		case 1:
			n = min(n, 20)
			copy(data[i][from:], bytes.Repeat([]byte{7}, n))
			copy(known[i][from:], bytes.Repeat([]byte{1}, n))
			if err := m.Fill8(at[i]+uint64(from), 7, uint64(n)); err != nil {
				t.Fatal(err)
			}
		case 2:
			to := r.IntN(size - n + 1)
			copy(data[1-i][to:], data[i][from:from+n])
			copy(known[1-i][to:], known[i][from:from+n])
			if err := m.Copy(at[1-i]+uint64(to), at[i]+uint64(from), uint64(n)); err != nil {
				t.Fatal(err)
			}
		default:
			err := m.Read(at[i]+uint64(from), p)
			if bytes.IndexByte(known[i][from:from+n], 0) >= 0 {
				kind(t, err, device.Uninitialised)
			} else if err != nil || !bytes.Equal(p, data[i][from:from+n]) {
				t.Fatalf("%v: %v, want %v", err, p, data[i][from:from+n])
			}
		}
		if r.IntN(200) == 0 { // begin again with an allocation that nobody wrote
			if err := m.Free(at[i]); err != nil {
				t.Fatal(err)
			}
			kind(t, m.Read(at[i], make([]byte, 1)), device.UseAfterFree)
			at[i], known[i] = alloc(t, m, size), [size]byte{}
		}
	}
}

func TestHostOutOfBounds(t *testing.T) {
	m := device.NewMemory(1 << 20)
	at := alloc(t, m, 100)
	for _, err := range []error{
		m.Write(at+97, make([]byte, 4)), m.Read(at-1, make([]byte, 1)), m.Write(at+100, []byte{1}), m.Free(at + 1), m.Write(0, []byte{1}),
		m.Fill32(at, 1, 26), m.Fill32(at, 1, 1<<62), m.Copy(at, at+96, 5), m.Copy(at+96, at, 5), m.Write(^uint64(0), []byte{1, 2}),
	} {
		kind(t, err, device.OutOfBounds)
	}
	if err := m.Fill32(at, 0x01020304, 25); err != nil {
		t.Error(err)
	}
	p := make([]byte, 100)
	if err := m.Read(at, p); err != nil || !bytes.Equal(p, bytes.Repeat([]byte{4, 3, 2, 1}, 25)) {
		t.Error(err, p)
	}
}

func kind(t *testing.T, err error, want device.Kind) {
	t.Helper()
	var f *device.Fault
	if !errors.As(err, &f) || f.Kind != want {
		t.Fatalf("%v, want %v", err, want)
	}
}
