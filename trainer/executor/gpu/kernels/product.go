package kernels

import "fmt"

const (
	tile      = 64  // edge of the part of a product that one block computes
	largeTile = 128 // the same for float32 if there are as many such parts as largeGrid
	largeGrid = 128
	// A product with few tiles and a long sum divides the sum among blocks.
	fewTiles   = 64
	longSum    = 1024 // terms
	partTerms  = 256  // least number of terms of a part
	mostParts  = 32
	mostBlockY = 1<<16 - 1 // of a grid's second and third dimension
)

// Matrices are count pairs of matrices to multiply, which lie one after the
// other. Results are M x N; each element is a sum of K terms. A is K x M in
// memory if TransA is set, B is N x K if TransB is set.
type Matrices struct {
	Count, M, N, K int
	TransA, TransB bool
	Bias           bool // add the vector bias of N elements to each row of the result
}

// Product multiplies matrices. The operands are out, a, b and, with Bias, bias.
//
// Each element is a sum in ascending order of k, beginning at 0, each product
// fused with its addition. A long sum of a small result is divided into parts
// that depend on the shape alone; the parts are added in their order. The bias
// is added last.
func Product(t Type, p Matrices) (Operation, error) {
	if err := check("matrix product", elements(p.Count, p.M, p.K), elements(p.Count, p.K, p.N), elements(p.Count, p.M, p.N)); err != nil {
		return Operation{}, err
	}
	parts, size := p.parts()
	g := tiles(p.M, p.N, p.Count*parts)
	if g[1] > mostBlockY || g[2] > mostBlockY {
		return Operation{}, fmt.Errorf("matrix product on a GPU: %d results of %d x %d: too many", p.Count, p.M, p.N)
	}
	o := Operation{Operands: []string{"out", "a", "b"}}
	bias := 1 // an address that is not read
	if p.Bias {
		bias, o.Operands = 3, append(o.Operands, "bias")
	}
	to := 0
	if parts > 1 {
		to, o.Scratch = len(o.Operands), parts*p.Count*p.M*p.N*t.Size()
	}
	kernel := "product_" + p.order() + "_" + t.suffix()
	if large := gridOf(largeTile, p.M, p.N, p.Count); t == Float32 && parts == 1 && int(large[0])*int(large[1])*p.Count >= largeGrid {
		kernel, g = "large_"+kernel, large
	}
	o = o.then(launch("product", kernel, g, blockThreads, []int{to, 1, 2, bias},
		p.M, p.N, p.K, parts, size, flag(p.Bias && parts == 1)))
	if p.K > 0 && len(o.Launches) > 0 {
		o.Product = &p
	}
	if parts > 1 {
		n := p.Count * p.M * p.N
		o = o.then(launch("product", "parts_"+t.suffix(), grid(n), blockThreads, []int{0, to, bias}, n, p.M*p.N, p.N, parts, flag(p.Bias)))
	}
	return o, nil
}

// parts divides the sums: the number of parts and the terms of each.
func (p Matrices) parts() (parts, size int) {
	n := divide(p.M, tile) * divide(p.N, tile) * p.Count
	if p.K < longSum || n >= fewTiles || n == 0 {
		return 1, max(p.K, 1)
	}
	parts = min(p.K/partTerms, divide(2*fewTiles, n), mostParts)
	size = divide(divide(p.K, parts), 16) * 16
	return divide(p.K, size), size
}

// order is the kernel's name for which operands are read transposed.
func (p Matrices) order() string {
	letter := map[bool]string{false: "n", true: "t"}
	return letter[p.TransA] + letter[p.TransB]
}

// tiles is a grid for count results of m x n elements.
func tiles(m, n, count int) [3]uint32 { return gridOf(tile, m, n, count) }

func gridOf(edge, m, n, count int) [3]uint32 {
	return [3]uint32{uint32(divide(n, edge)), uint32(divide(m, edge)), uint32(count)}
}

// MatVec multiplies a matrix with rows and columns in memory, which is read
// transposed if trans is set, and a vector. The operands are out, a and x. Sums
// are kept in double precision.
func MatVec(t Type, rows, columns int, trans bool) (Operation, error) {
	m, k, down, along := rows, columns, columns, 1
	if trans {
		m, k, down, along = columns, rows, 1, columns
	}
	team := teamFor(k, trans)
	o := Operation{Operands: []string{"out", "a", "x"}}
	return o.then(launch("product", "matvec_"+t.suffix(), team.grid(m), blockThreads, all(3), m, k, down, along, team.lanes, flag(team.across))),
		check("matrix times vector", elements(rows, columns), rows, columns)
}

// Outer computes each product of an element of a, which has m, and one of b,
// which has n.
func Outer(t Type, m, n int) (Operation, error) {
	return Spread(t, "⊙", []int{m, n}, []int{1, 0}, []int{0, 1})
}
