package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Next must return an error for frames that no sender of this version sends.
func TestInvalidFramesAreRefused(t *testing.T) {
	for want, h := range map[string]Header{
		"heartbeat with 5 bytes": {Kind: Heartbeat, Length: 5},
		"frame of unknown kind":  {Kind: kinds},
		"unknown kind 0":         {},
		"unknown kind 255":       {Kind: 255},
	} {
		here, there := net.Pipe()
		c := NewConn(here, 0, time.Hour)
		var head [HeaderSize]byte
		h.put(head[:])
		go func() {
			there.Write(head[:]) // an error shows as a failure of Next
			there.Close()
		}()
		if _, err := c.Next(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", h, err, want)
		}
		c.Close()
	}
}

// A connection with a silent peer must fail after the time that it allows, not
// earlier and not later.
func TestSilentPeerFailsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		c := NewConn(here, 0, time.Minute)
		defer c.Close()
		began := time.Now()
		if _, err := c.Next(); !errors.Is(err, ErrPeerTimeout) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

// No heartbeat may be sent between the frames of one Send.
func TestHeartbeatsDoNotSplitASend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = beatsPerSilence * time.Second
		here, there := net.Pipe()
		c := NewConn(here, 0, silence)
		var got atomic.Int64
		go func() {
			b := make([]byte, HeaderSize)
			for {
				n, err := there.Read(b)
				if err != nil {
					return
				}
				got.Add(int64(n))
			}
		}()
		c.write.Lock() // hold the lock as a running Send does
		time.Sleep(3*time.Second + time.Millisecond)
		if n := got.Load(); n != 0 {
			t.Errorf("%d bytes came during a Send", n)
		}
		c.write.Unlock()
		time.Sleep(time.Second)
		if n := got.Load(); n != HeaderSize {
			t.Errorf("%d bytes came after it, want a heartbeat", n)
		}
		c.Close()
		there.Close()
	})
}

// A connection must also fail if the peer sends something first and nothing
// after that.
func TestPeerThatFallsSilentFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		c := NewConn(here, 0, time.Minute)
		defer c.Close()
		const heard = 25 * time.Second
		go func() {
			time.Sleep(heard)
			var beat [HeaderSize]byte
			Header{Kind: Heartbeat}.put(beat[:])
			there.Write(beat[:])
		}()
		began := time.Now()
		if _, err := c.Next(); !errors.Is(err, ErrPeerTimeout) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took < heard+time.Minute-time.Minute/beatsPerSilence || took > heard+time.Minute+time.Minute/beatsPerSilence {
			t.Errorf("took %v", took)
		}
	})
}

// The header must have exactly the bytes of version 3. A change of the format
// needs another version number.
func TestHeaderFormat(t *testing.T) {
	h := Header{Kind: Push, Generation: 0x01020304, Epoch: 0x05060708, Variable: 0x090a0b0c, Step: 0x0d0e0f1011121314,
		Offset: 0x15161718191a1b1c, Length: 0x1d1e1f2021222324, Part: 0x25262728}
	var b [HeaderSize]byte
	h.put(b[:])
	want := "505803" + fmt.Sprintf("%02x", byte(Push)) + "04030201" + "08070605" + "0c0b0a09" + "14131211100f0e0d" +
		"1c1b1a1918171615" + "24232221201f1e1d" + "28272625"
	if got := hex.EncodeToString(b[:]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, err := parse(b[:]); err != nil || got != h {
		t.Errorf("read as %+v, %v", got, err)
	}
	if Heartbeat != 1 || Push != 7 || Chunk != 31 {
		t.Errorf("the kinds have other numbers: %d, %d, %d", Heartbeat, Push, Chunk)
	}
	for at, want := range map[int]string{0: "not a frame", 1: "not a frame", 2: "frame of version"} {
		bad := b
		bad[at] ^= 1
		if _, err := parse(bad[:]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
}

// SetEpoch must set the epoch of all frames sent afterwards, and of no earlier
// ones.
func TestSetEpochAppliesToLaterFrames(t *testing.T) {
	a, b := pair(t, time.Minute)
	for _, c := range []struct{ set, own, want uint32 }{{0, 0, 0}, {0, 5, 5}, {7, 0, 7}, {7, 5, 7}, {8, 0, 8}} {
		a.SetEpoch(c.set)
		if err := a.Send(Frame{Header: Header{Kind: Push, Epoch: c.own}}); err != nil {
			t.Fatal(err)
		}
		if h, err := b.Next(); err != nil || h.Epoch != c.want {
			t.Errorf("epoch %d of a frame with %d set: %d, %v", c.own, c.set, h.Epoch, err)
		}
	}
}
