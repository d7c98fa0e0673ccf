package cudatest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/plx-run/plx/internal/ptx"
	"github.com/plx-run/plx/trainer/executor/device"
)

// Commands of the library, in the order of libcuda.c.
const (
	hello = iota
	alloc
	free
	info
	load
	unload
	kernel
	write
	read
	within
	set
	launch
	product
)

// longest is the largest request that is read: a copy of all memory.
const longest = 1 << 31

// Codes that only the stand-in knows.
const (
	invalidValue  = 1
	invalidHandle = 400
)

// machine is the GPU of one process.
type machine struct {
	driver   *Driver
	memory   *ptx.Memory
	modules  []*ptx.Module // by id; nil means unloaded
	kernels  []*ptx.Kernel // by id
	launched int           // number of launches
}

func newMachine(d *Driver) *machine {
	return &machine{driver: d, memory: ptx.NewMemory(d.options.Memory)}
}

// serve answers requests until the process is gone.
func (m *machine) serve(c net.Conn) {
	for {
		command, request, err := receive(c)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				m.driver.fault(fmt.Errorf("read a request: %w", err))
			}
			return
		}
		code, answer := m.answer(command, request)
		reply := binary.LittleEndian.AppendUint32(nil, uint32(code))
		reply = binary.LittleEndian.AppendUint32(reply, uint32(len(answer)))
		if _, err := c.Write(append(reply, answer...)); err != nil {
			return // the process is gone
		}
	}
}

func receive(c net.Conn) (command uint32, request []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n > longest {
		return 0, nil, fmt.Errorf("a request of %d bytes", n)
	}
	request = make([]byte, n)
	_, err = io.ReadFull(c, request)
	return binary.LittleEndian.Uint32(head[:]), request, err
}

// numbers are the 64-bit numbers at the beginning of a request; missing ones are 0.
func numbers(request []byte) (n [3]uint64) {
	for i := range n {
		if len(request) >= 8*(i+1) {
			n[i] = binary.LittleEndian.Uint64(request[8*i:])
		}
	}
	return n
}

func (m *machine) answer(command uint32, request []byte) (code int, answer []byte) {
	n := numbers(request)
	switch command {
	case hello:
		return 0, m.hello()
	case alloc:
		return m.alloc(n[0])
	case free:
		return m.faulty(m.memory.Free(n[0])), nil
	case info:
		total := m.driver.options.Memory
		return 0, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, total-m.memory.Used()), total)
	case load:
		return m.load(request)
	case unload:
		m.modules[n[0]] = nil
		return 0, nil
	case kernel:
		return m.kernel(n[0], string(request[8:]))
	case write:
		return m.faulty(m.memory.Write(n[0], request[8:])), nil
	case launch:
		return m.launch(n[0], request[8:]), nil
	case product:
		return m.product(request), nil
	}
	return m.copy(command, n)
}

// copy moves bytes within the memory, or out of it.
func (m *machine) copy(command uint32, n [3]uint64) (code int, answer []byte) {
	switch command {
	case read:
		b := make([]byte, n[1])
		code = m.faulty(m.memory.Read(n[0], b))
		return code, b
	case within:
		return m.faulty(m.memory.Copy(n[0], n[1], n[2])), nil
	case set:
		return m.faulty(m.memory.Fill8(n[0], byte(n[1]), n[2])), nil
	}
	return m.faulty(fmt.Errorf("unknown command %d", command)), nil
}

// hello is struct facts of libcuda.c.
func (m *machine) hello() []byte {
	o := m.driver.options
	b := binary.LittleEndian.AppendUint64(nil, o.Memory)
	for _, x := range []uint32{uint32(o.Version), uint32(o.Capable / 10), uint32(o.Capable % 10), 1} {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	var name [64]byte
	copy(name[:], "Stand-in GPU")
	return append(b, name[:]...)
}

func (m *machine) alloc(size uint64) (int, []byte) {
	address, err := m.memory.Alloc(size)
	if err != nil {
		return device.OutOfMemory, nil
	}
	return 0, binary.LittleEndian.AppendUint64(nil, address)
}

func (m *machine) load(source []byte) (int, []byte) {
	if m.driver.options.NoPTX {
		return device.InvalidPTX, []byte("this driver takes no PTX")
	}
	module, err := ptx.Parse(string(source))
	if err != nil {
		return device.InvalidPTX, []byte(err.Error())
	}
	m.modules = append(m.modules, module)
	return 0, binary.LittleEndian.AppendUint64(nil, uint64(len(m.modules)-1))
}

// kernel is struct function of libcuda.c from its field id on.
func (m *machine) kernel(module uint64, name string) (int, []byte) {
	if module >= uint64(len(m.modules)) || m.modules[module] == nil {
		return invalidHandle, nil
	}
	k, err := m.modules[module].Kernel(name)
	if err != nil {
		return device.NotFound, nil
	}
	const most = 64
	params := k.Params()
	if len(params) > most {
		return invalidValue, nil
	}
	m.kernels = append(m.kernels, k)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(m.kernels)-1))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(params)))
	size, offsets, sizes := 0, make([]byte, 4*most), make([]byte, 4*most)
	for i, p := range params {
		size = p.Offset + p.Size
		binary.LittleEndian.PutUint32(offsets[4*i:], uint32(p.Offset))
		binary.LittleEndian.PutUint32(sizes[4*i:], uint32(p.Size))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	return 0, append(append(b, offsets...), sizes...)
}

func (m *machine) launch(id uint64, request []byte) int {
	if id >= uint64(len(m.kernels)) || len(request) < 32 {
		return invalidHandle
	}
	var s [7]uint32
	for i := range s {
		s[i] = binary.LittleEndian.Uint32(request[4*i:])
	}
	if m.launched++; m.launched == m.driver.options.Fault {
		return m.faulty(fmt.Errorf("kernel %s: the fault that the test asked for", m.kernels[id].Name()))
	}
	grid, block := [3]uint32(s[:3]), [3]uint32(s[3:6])
	return m.faulty(m.kernels[id].Launch(m.memory, grid, block, s[6], request[32:]))
}

// faulty keeps a fault, and is the driver's code for it.
func (m *machine) faulty(err error) int {
	if err == nil {
		return 0
	}
	m.driver.fault(err)
	return device.IllegalAddress
}
