//go:build cgocuda

package driver

const binding = "*cgocuda.gpu"
