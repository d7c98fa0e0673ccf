package device

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
)

// Addresses of a device. Allocations begin above the windows through which
// generic addresses reach shared and local memory.
const (
	SharedWindow = 1 << 32
	LocalWindow  = 2 << 32
	WindowSize   = 1 << 30
	firstAddress = 0x7f_0000_0000

	alignment = 256
	redZone   = 256  // bytes between two allocations, at least
	mostFreed = 4096 // freed allocations that Memory remembers
)

// Memory is the global memory of a device. Its methods may run at the same
// time; launches on one memory run one after the other.
type Memory struct {
	mu     sync.Mutex
	limit  uint64
	used   uint64
	next   uint64            // address of the next allocation; never falls
	live   []*Region         // by address
	freed  []*Region         // without data; the last ones
	clock  uint64            // the last interval, see Clock
	placed map[any][]*Region // by their owner
}

// NewMemory returns a memory of at most limit bytes.
func NewMemory(limit uint64) *Memory {
	return &Memory{limit: limit, next: firstAddress, placed: map[any][]*Region{}}
}

// Alloc returns the address of size new bytes, a multiple of 256. Addresses
// are never used again.
func (m *Memory) Alloc(size uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.alloc(size)
	if err != nil {
		return 0, err
	}
	return r.Base, nil
}

func (m *Memory) alloc(size uint64) (*Region, error) {
	if size == 0 {
		return nil, fmt.Errorf("device memory: allocate 0 bytes")
	}
	if size > m.limit-m.used {
		return nil, fmt.Errorf("device memory: allocate %d bytes: %d of %d bytes are in use", size, m.used, m.limit)
	}
	r := NewRegion(m.next, int(size))
	m.next += (size+redZone+alignment-1)/alignment*alignment + alignment
	m.used += size
	m.live = append(m.live, r)
	return r, nil
}

// Free ends an allocation.
func (m *Memory) Free(address uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := m.search(address)
	if !found || m.live[i].Base != address {
		return m.Absent(address, 0)
	}
	r := m.live[i]
	m.live = slices.Delete(m.live, i, i+1)
	m.used -= uint64(len(r.Data))
	m.freed = append(m.freed, &Region{Base: r.Base, Size: r.Size})
	if len(m.freed) > mostFreed {
		m.freed = slices.Delete(m.freed, 0, mostFreed/2)
	}
	return nil
}

// search finds the live allocation that holds an address.
func (m *Memory) search(address uint64) (int, bool) {
	regions := m.live
	i, exact := slices.BinarySearchFunc(regions, address, func(r *Region, a uint64) int { return cmp.Compare(r.Base, a) })
	if !exact {
		i--
	}
	return i, i >= 0 && address-regions[i].Base < regions[i].Size
}

// Absent describes an access to bytes of which no live allocation has all.
func (m *Memory) Absent(address, size uint64) *Fault {
	f := &Fault{Kind: OutOfBounds, Address: address}
	where := fmt.Sprintf("%d bytes at %#x", size, address)
	if i, found := m.search(address); found {
		r := m.live[i]
		f.What = fmt.Sprintf("%s: the allocation at %#x ends after %d bytes", where, r.Base, r.Size)
		return f
	}
	if i := slices.IndexFunc(m.freed, func(r *Region) bool { return address-r.Base < r.Size }); i >= 0 {
		f.Kind = UseAfterFree
		f.What = fmt.Sprintf("%s: the allocation of %d bytes at %#x was freed", where, m.freed[i].Size, m.freed[i].Base)
		return f
	}
	f.What = where + ": no allocation is there"
	if i, _ := m.search(address); i >= 0 {
		r := m.live[i]
		f.What += fmt.Sprintf("; the one before it ends %d bytes earlier", address-r.Base-r.Size)
	}
	return f
}

// Hold returns the allocation that has all of size bytes at an address.
func (m *Memory) Hold(address, size uint64) (*Region, *Fault) {
	i, found := m.search(address)
	if !found || m.live[i].Size-(address-m.live[i].Base) < size {
		return nil, m.Absent(address, size)
	}
	return m.live[i], nil
}

// Write copies bytes of the host to the device.
func (m *Memory) Write(address uint64, p []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(p) == 0 {
		return nil
	}
	r, fault := m.Hold(address, uint64(len(p)))
	if fault != nil {
		return fault
	}
	copy(r.Data[address-r.Base:], p)
	r.Mark(address-r.Base, uint64(len(p)))
	return nil
}

// Read copies bytes of the device to the host. They must have been written.
func (m *Memory) Read(address uint64, p []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(p) == 0 {
		return nil
	}
	r, fault := m.Hold(address, uint64(len(p)))
	if fault != nil {
		return fault
	}
	if at, ok := r.marked(address-r.Base, uint64(len(p))); !ok {
		return &Fault{Kind: Uninitialised, Address: r.Base + at,
			What: fmt.Sprintf("the host reads %d bytes at %#x: byte %d was never written", len(p), address, r.Base+at-address)}
	}
	copy(p, r.Data[address-r.Base:])
	return nil
}

// Copy copies bytes from one place of the device to another. Bytes that were
// never written stay so.
func (m *Memory) Copy(to, from, size uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if size == 0 {
		return nil
	}
	source, fault := m.Hold(from, size)
	if fault != nil {
		return fault
	}
	target, fault := m.Hold(to, size)
	if fault != nil {
		return fault
	}
	copy(target.Data[to-target.Base:], source.Data[from-source.Base:][:size])
	for i := range size { // overlapping ranges are the caller's mistake
		target.setWritten(to-target.Base+i, source.isWritten(from-source.Base+i))
	}
	return nil
}

// Fill32 writes count copies of a value of four bytes.
func (m *Memory) Fill32(address uint64, value uint32, count uint64) error {
	var p [4]byte
	binary.LittleEndian.PutUint32(p[:], value)
	return m.fill(address, p[:], count)
}

// Fill8 writes count copies of a byte.
func (m *Memory) Fill8(address uint64, value byte, count uint64) error {
	return m.fill(address, []byte{value}, count)
}

func (m *Memory) fill(address uint64, pattern []byte, count uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if count == 0 {
		return nil
	}
	if count > m.limit {
		return m.Absent(address, count)
	}
	size := count * uint64(len(pattern))
	r, fault := m.Hold(address, size)
	if fault != nil {
		return fault
	}
	target := r.Data[address-r.Base:][:size]
	for n := copy(target, pattern); n < len(target); n *= 2 {
		copy(target[n:], target[:n])
	}
	r.Mark(address-r.Base, size)
	return nil
}

// Used returns the bytes of all live allocations.
func (m *Memory) Used() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Lock keeps others away while a launch uses Place, Hold and Absent.
func (m *Memory) Lock() { m.mu.Lock() }

// Unlock ends Lock.
func (m *Memory) Unlock() { m.mu.Unlock() }

// Place allocates the variables of an owner, once, with zeros in them. It
// reports whether they are new.
func (m *Memory) Place(owner any, sizes []int) (regions []*Region, fresh bool, err error) {
	if regions, done := m.placed[owner]; done {
		return regions, false, nil
	}
	for _, size := range sizes {
		r, err := m.alloc(uint64(size))
		if err != nil {
			return nil, false, err
		}
		r.Mark(0, r.Size)
		regions = append(regions, r)
	}
	m.placed[owner] = regions
	return regions, true, nil
}

// Tick begins an interval and returns its number, see Clock. The caller holds
// the lock.
func (m *Memory) Tick() uint64 {
	m.clock++
	return m.clock
}
