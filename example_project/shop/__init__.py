"""The shop: products, orders, and the jobs that charge, mail, draw and count."""
