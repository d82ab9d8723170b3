module routewright.dev/e2e/tools/testapp

go 1.26
