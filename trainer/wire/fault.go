package wire

import (
	"encoding/binary"
	"net"
)

// tear is what a fault makes of Send: half of the first frame goes out, then
// the connection is reset. The caller holds c.write.
func (c *Conn) tear(frames []Frame, cause error) error {
	if len(frames) > 0 {
		var head [HeaderSize]byte
		h := frames[0].Header
		h.Generation, h.Length = c.generation, uint64(len(frames[0].Payload))
		h.put(head[:])
		whole := append(head[:], frames[0].Payload...)
		n, _ := c.conn.Write(whole[:len(whole)/2]) // the connection ends badly in any case
		c.given.Add(uint64(n))
	}
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // the connection ends badly in any case
	}
	_ = c.cut() // the connection ends badly in any case
	return cause
}

// flip is what a fault makes of a header: it flips one bit, which depends on the
// step.
func flip(header []byte) {
	const stride = 89 // has no factor in common with the number of bits, so that in time it flips each of them
	bit := binary.LittleEndian.Uint64(header[16:]) * stride % (8 * HeaderSize)
	header[bit/8] ^= 1 << (bit % 8)
}
