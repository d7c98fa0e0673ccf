package wire

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Next refuses frames that no sender of this version makes.
func TestOddFramesAreRefused(t *testing.T) {
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
			there.Write(head[:]) // Next fails otherwise
			there.Close()
		}()
		if _, err := c.Next(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", h, err, want)
		}
		c.Close()
	}
}

// A silent peer is given up after the silence that the connection tolerates,
// neither earlier nor later.
func TestSilenceIsNoticedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		c := NewConn(here, 0, time.Minute)
		defer c.Close()
		began := time.Now()
		if _, err := c.Next(); !errors.Is(err, ErrSilent) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

// A heartbeat never comes between the frames of a Send.
func TestHeartbeatsWaitForASend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silence = beats * time.Second
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
		c.write.Lock() // as Send does
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
